// Runs a kernel block by block on one host thread, with the threads of a block as fibers.
//
// A thread runs until it waits at a barrier or in a shuffle, or ends. Threads that never wait need no switch:
// one fiber runs them one after the other, and continues with the next block. The last thread that arrives releases the
// others. If no thread can continue, a deadlock is reported. When an error ends a kernel, its fibers are abandoned: no
// destructors of its threads run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <tandem/tests/cuda_emulation/fiber.h>
#include <tandem/tests/cuda_emulation/memory_check.h>
#include <tandem/tests/cuda_emulation/random.h>
#include <tandem/tests/cuda_emulation/traffic.h>

namespace cuda_emulation {

inline constexpr unsigned int kMaxThreads = 1024;
inline constexpr size_t kMaxDynamicShared = size_t{48} << 10;

struct KernelLaunch {
  const KernelCall* call;
  dim3 grid;
  dim3 block;
  size_t num_dynamic_bytes;
  std::vector<Arena*> arenas;  // accessible arenas, the kernel's own device first
  std::vector<Arena*> others;
  bool checks;
  Random* random;       // order of blocks and threads; nullptr: ascending
  uint64_t max_blocks;  // maximum number of blocks that run
  Traffic* traffic;     // counts the accesses; nullptr: they are not counted
};

class KernelRun {
 public:
  KernelRun();

  /// Runs one kernel at a time. report() has the text of an error.
  cudaError_t run(const KernelLaunch& launch);
  const std::string& report() const { return report_; }

  // Called by the threads of the kernel.
  void barrier();
  uint64_t shuffle(ShuffleKind kind, unsigned int mask, uint64_t value, unsigned int argument);
  void* dynamic_shared() { return dynamic_shared_; }
  MemoryCheck& memory() { return memory_; }
  /// Counts and checks an access of the current thread.
  void access(uintptr_t pc, uintptr_t address, size_t num_bytes, AccessKind kind) {
    if (traffic_ != nullptr) [[unlikely]] {
      count_access(pc, address, num_bytes, kind);
    }
    memory_.access(address, num_bytes, kind);
  }
  const FiberPool& fibers() const { return pool_; }
  /// Ends the kernel.
  [[noreturn]] void fail(cudaError_t error, const std::string& what);

  std::string thread_text(uint32_t number) const;
  std::string block_text_of(uint32_t serial) const;

  void work();

 private:
  enum class State : uint8_t { kNotStarted, kGoesOn, kBarrier, kShuffle, kEnded };
  struct Thread {
    Fiber* fiber = nullptr;
    uint32_t number = 0;
    State state = State::kNotStarted;
  };
  struct Lane {
    ShuffleKind kind;
    unsigned int mask;
    uint64_t value;
    unsigned int argument;
    uint64_t result;
  };
  struct Warp {
    unsigned int lanes;  // existing lanes
    unsigned int ended;
    unsigned int waiting;  // lanes that wait in a shuffle
    std::array<Lane, 32> lane;
  };

  void count_access(uintptr_t pc, uintptr_t address, size_t num_bytes, AccessKind kind);
  bool next_block();
  void release_barrier();
  void end_thread();
  void wait();
  void resume(uint32_t number);
  void leave_to(uint32_t number);
  void enter(Thread& thread);
  void complete(Warp& warp, unsigned int mask);
  uint64_t shuffle_result(const Warp& warp, uint32_t lane, unsigned int mask);
  [[noreturn]] void deadlock();
  uint32_t pop_ready();
  void push_ready(uint32_t number) { ready_[ready_end_++ % ready_.size()] = static_cast<uint16_t>(number); }
  bool any_ready() const { return ready_begin_ != ready_end_; }

  const KernelLaunch* launch_ = nullptr;
  Traffic* traffic_ = nullptr;  // of the launch
  FiberPool pool_;
  MemoryCheck memory_;
  Context machine_;  // the host thread
  Fiber* fiber_ = nullptr;
  cudaError_t error_ = cudaSuccess;
  std::string report_;
  char* dynamic_shared_ = nullptr;

  uint32_t serial_ = 0;  // number of the current interval, counted over all launches
  uint64_t num_blocks_ = 0, next_block_ = 0;
  Order block_order_, thread_order_;
  uint3 block_index_{};
  std::vector<uint32_t> block_serials_;  // serial at the start of each block

  uint32_t num_threads_ = 0;
  dim3 indexed_{0, 0, 0};  // block dimensions for which indices_ is valid
  std::vector<uint3> indices_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* current_ = nullptr;
  uint32_t num_started_ = 0, num_alive_ = 0, num_arrived_ = 0;
  std::array<uint16_t, 2048> ready_{};
  size_t ready_begin_ = 0, ready_end_ = 0;
};

/// The kernel that this host thread runs, nullptr outside kernels; and the kernel whose accesses are checked. The
/// second is set only while the kernel's own code runs, because standard library templates are instrumented too if a
/// file with kernels uses them.
extern constinit thread_local KernelRun* running_kernel;
extern constinit thread_local KernelRun* checked_kernel;

/// Enters library code from kernel code.
class Uninstrumented {
 public:
  Uninstrumented() : checked_(checked_kernel) { checked_kernel = nullptr; }
  ~Uninstrumented() { checked_kernel = checked_; }
  Uninstrumented(const Uninstrumented&) = delete;
  Uninstrumented& operator=(const Uninstrumented&) = delete;
  KernelRun* checked() const { return checked_; }

 private:
  KernelRun* checked_;
};

// threadIdx and the other index variables, under the names by which the library writes them.
struct Extent {
  unsigned int x, y, z;
};
extern constinit thread_local Extent emulated_thread_index __asm__("tandem_emulated_threadIdx");
extern constinit thread_local Extent emulated_block_index __asm__("tandem_emulated_blockIdx");
extern constinit thread_local Extent emulated_block_dimensions __asm__("tandem_emulated_blockDim");
extern constinit thread_local Extent emulated_grid_dimensions __asm__("tandem_emulated_gridDim");

}  // namespace cuda_emulation
