// Runs a kernel: block by block on one thread of the machine, the threads of a block as fibers.
//
// A thread runs until it waits at a barrier or in a warp operation, or ends.  One that never waits needs no switch: the fiber goes
// on with the next thread, and with the next block.  Whoever arrives last lets the others go on.  Where nobody can go on, that is
// reported.  Whatever ends a kernel leaves its fibers where they are: no destructor of a kernel's thread runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <tandem/tests/cuda_emulation/fiber.h>
#include <tandem/tests/cuda_emulation/memory_check.h>
#include <tandem/tests/cuda_emulation/random.h>

namespace cuda_emulation {

inline constexpr unsigned int kMaxThreads = 1024;
inline constexpr size_t kDefaultDynamicShared = size_t{48} << 10;
inline constexpr size_t kMaxDynamicShared = size_t{227} << 10;

enum class Barrier : uint8_t { kSync, kOr, kAnd, kCount };
enum class WarpOp : uint8_t {
  kSync,
  kBallot,
  kAny,
  kAll,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kSignedMin,
  kSignedMax
};

struct KernelLaunch {
  const KernelCall* call;
  dim3 grid;
  dim3 block;
  size_t num_dynamic_bytes;
  std::vector<Arena*> arenas;  // that it may touch, its own device's first
  std::vector<Arena*> others;
  bool checks;
  Random* random;  // nullptr: in order
};

class KernelRun final : public WarpOrder {
 public:
  KernelRun();

  /// One at a time.  An error's text is in report().
  cudaError_t run(const KernelLaunch& launch);
  const std::string& report() const { return report_; }

  // For the kernel's threads.
  int barrier(Barrier kind, int predicate);
  uint64_t warp_operation(WarpOp op, unsigned int mask, uint64_t value, int argument, int width);
  void* dynamic_shared() { return dynamic_shared_; }
  MemoryCheck& memory() { return memory_; }
  const FiberPool& fibers() const { return pool_; }
  /// Ends the kernel.
  [[noreturn]] void fail(cudaError_t error, const std::string& what);

  std::string thread_text(uint32_t number) const;
  std::string block_text_of(uint32_t serial) const;

  void work();

  bool synchronised_since(uint32_t warp, uint32_t lane_a, uint32_t lane_b, uint32_t time) const override;

 private:
  enum class State : uint8_t { kNotStarted, kGoesOn, kBarrier, kWarp, kEnded };
  struct Thread {
    Fiber* fiber = nullptr;
    uint32_t number = 0;
    State state = State::kNotStarted;
  };
  struct Lane {
    WarpOp op;
    unsigned int mask;
    uint64_t value;
    int argument;
    int width;
    uint64_t result;
  };
  struct Warp {
    unsigned int lanes;  // that there are
    unsigned int ended;
    unsigned int waiting;  // in a warp operation
    uint32_t time;         // synchronisations since the last barrier
    uint32_t all_at;       // time of the last one of all lanes
    bool some;             // whether `pairs` holds anything
    std::array<Lane, 32> lane;
    std::array<std::array<uint32_t, 32>, 32> pairs;  // time of the last one of some lanes, for two of them
  };

  bool next_block();
  void begin_interval();
  void release_barrier();
  void end_thread();
  void wait();
  void resume(uint32_t number);
  void leave_to(uint32_t number);
  void enter(Thread& thread);
  void complete(Warp& warp, unsigned int mask, WarpOp op);
  uint64_t shuffle_result(const Warp& warp, uint32_t lane, unsigned int mask);
  [[noreturn]] void deadlock();
  uint32_t pop_ready();
  void push_ready(uint32_t number) { ready_[ready_end_++ % ready_.size()] = static_cast<uint16_t>(number); }
  bool any_ready() const { return ready_begin_ != ready_end_; }

  const KernelLaunch* launch_ = nullptr;
  FiberPool pool_;
  MemoryCheck memory_;
  Context machine_;  // the thread of the machine
  Fiber* fiber_ = nullptr;
  cudaError_t error_ = cudaSuccess;
  std::string report_;
  char* dynamic_shared_ = nullptr;

  uint32_t serial_ = 0;  // of the interval, counted over all launches
  uint64_t num_blocks_ = 0, next_block_ = 0;
  Order block_order_, thread_order_;
  uint3 block_index_{};
  std::vector<uint32_t> block_serials_;  // at which each block began

  uint32_t num_threads_ = 0;
  dim3 indexed_{0, 0, 0};  // block dimensions for which indices_ holds
  std::vector<uint3> indices_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* current_ = nullptr;
  uint32_t num_started_ = 0, num_alive_ = 0, num_arrived_ = 0;
  Barrier barrier_kind_ = Barrier::kSync;
  int num_true_ = 0;
  int barrier_result_ = 0;
  std::array<uint16_t, 2048> ready_{};
  size_t ready_begin_ = 0, ready_end_ = 0;
};

/// What this thread of the machine runs now, nullptr outside of kernels; and the same while accesses are checked, which is as long
/// as the kernel's own code runs: the standard library's templates are instrumented if a file of kernels uses them too.
extern constinit thread_local KernelRun* running_kernel;
extern constinit thread_local KernelRun* checked_kernel;

/// Out of a kernel's code into the library's.
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

// threadIdx and its like, as the library writes them.
struct Extent {
  unsigned int x, y, z;
};
extern constinit thread_local Extent emulated_thread_index __asm__("tandem_emulated_threadIdx");
extern constinit thread_local Extent emulated_block_index __asm__("tandem_emulated_blockIdx");
extern constinit thread_local Extent emulated_block_dimensions __asm__("tandem_emulated_blockDim");
extern constinit thread_local Extent emulated_grid_dimensions __asm__("tandem_emulated_gridDim");

}  // namespace cuda_emulation
