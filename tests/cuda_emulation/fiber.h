// Fibers: the threads of a kernel. All functions must be called on the host thread that runs the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_emulation {

/// An execution context: a fiber, or the host thread that started the fibers.
struct Context {
  void* stack_pointer = nullptr;
  void* fake_stack = nullptr;  // for AddressSanitizer
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
};

/// Switches from context `from` to `to`; returns when something switches back to `from`.
void switch_context(Context& from, Context& to);

struct Fiber : Context {
  uintptr_t stack_low = 0;
};

/// Fibers that all run one function, which never returns.
class FiberPool {
 public:
  static constexpr size_t kStackBytes = size_t{256} << 10;
  static constexpr size_t kMaxFibers = 1024 + 1;

  explicit FiberPool(void (*function)());

  Fiber& take();
  void give_back(Fiber& fiber) { idle_.push_back(&fiber); }

  /// Restarts all fibers from the beginning.
  void restart();

  /// Whether the address is in a fiber's stack or in its guard page.
  bool on_stack(uintptr_t address) const { return address - region_ < kMaxFibers * kStride; }
  /// Whether the address is in the guard page of a stack.
  bool on_guard(uintptr_t address) const { return on_stack(address) && (address - region_) % kStride < kGuardBytes; }

 private:
  static constexpr size_t kGuardBytes = 16384;
  static constexpr size_t kStride = kStackBytes + kGuardBytes;

  void set_to_beginning(Fiber& fiber, size_t index);

  uintptr_t region_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> idle_;
  size_t num_made_ = 0;
};

}  // namespace cuda_emulation
