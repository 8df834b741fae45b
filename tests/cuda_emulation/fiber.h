// Stacks with a way to change between them: a kernel's threads.  All functions belong to the one thread of the machine that runs a
// kernel at that time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_emulation {

/// Something that runs: a fiber, or the thread of the machine that started them.
struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t machine;
#endif
  void* fake_stack = nullptr;  // AddressSanitizer's
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
};

/// Leaves `from`, which goes on here when something switches to it, and goes on in `to`.
void switch_context(Context& from, Context& to);

struct Fiber : Context {
  uintptr_t stack_low = 0;
};

/// Fibers that all run one function; it never returns.
class FiberPool {
 public:
  static constexpr size_t kStackBytes = size_t{256} << 10;
  static constexpr size_t kMaxFibers = 1024 + 1;

  explicit FiberPool(void (*function)());

  Fiber& take();
  void give_back(Fiber& fiber) { idle_.push_back(&fiber); }

  /// All fibers are at their beginning again, wherever they were.
  void restart();

  /// Whether the address is in some fiber's stack, or in a guard page below one.
  bool on_stack(uintptr_t address) const { return address - region_ < kMaxFibers * kStride; }
  /// Whether the address is in the guard page of a stack.
  bool on_guard(uintptr_t address) const { return on_stack(address) && (address - region_) % kStride < kGuardBytes; }

 private:
  static constexpr size_t kGuardBytes = 16384;
  static constexpr size_t kStride = kStackBytes + kGuardBytes;

  void set_to_beginning(Fiber& fiber, size_t index);

  void (*function_)();
  uintptr_t region_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> idle_;
  size_t num_made_ = 0;
};

}  // namespace cuda_emulation
