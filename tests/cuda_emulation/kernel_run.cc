#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <tandem/tests/cuda_emulation/kernel_run.h>
#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {

constinit thread_local KernelRun* running_kernel = nullptr;
constinit thread_local KernelRun* checked_kernel = nullptr;
constinit thread_local Extent emulated_thread_index{};
constinit thread_local Extent emulated_block_index{};
constinit thread_local Extent emulated_block_dimensions{};
constinit thread_local Extent emulated_grid_dimensions{};

namespace {

KernelRun* the_run = nullptr;  // not thread_local: fibers outlive launches and move between host threads

void run_fiber() { the_run->work(); }

// A suspended fiber may continue on another host thread, so work() must not keep the address of a thread-local variable
// across a switch.
[[gnu::noinline]] void set_thread_index(uint3 v) { emulated_thread_index = {v.x, v.y, v.z}; }
[[gnu::noinline]] void set_checked(KernelRun* run) { checked_kernel = run; }
[[gnu::noinline]] void set_block_index(uint3 v) { emulated_block_index = {v.x, v.y, v.z}; }

constexpr uint32_t kLastSerial = 0xF0000000;

std::string index_text(uint3 v) {
  char text[48];
  std::snprintf(text, sizeof(text), "(%u,%u,%u)", v.x, v.y, v.z);
  return text;
}

std::string text_of(ShuffleKind kind, unsigned int mask) {
  char text[48];
  std::snprintf(text, sizeof(text), "__shfl_%s_sync(0x%08x)", kind == ShuffleKind::kUp ? "up" : "xor", mask);
  return text;
}

}  // namespace

KernelRun::KernelRun() : pool_(&run_fiber), memory_(*this), threads_(kMaxThreads), warps_(kMaxThreads / 32) {
  the_run = this;
  for (uint32_t i = 0; i < kMaxThreads; ++i) {
    threads_[i].number = i;
  }
  // Dynamic shared memory, followed by a guard page.
  const size_t num_bytes = (kMaxDynamicShared + 4095) / 4096 * 4096;
  void* p = ::mmap(nullptr, num_bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || ::mprotect(static_cast<char*>(p) + num_bytes, 4096, PROT_NONE) != 0) {
    std::perror("cuda_emulation: mmap of shared memory");
    std::abort();
  }
  dynamic_shared_ = static_cast<char*>(p);
}

cudaError_t KernelRun::run(const KernelLaunch& launch) {
  launch_ = &launch;
  traffic_ = launch.traffic;
  error_ = cudaSuccess;
  report_.clear();
  const uint64_t all_blocks = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  num_blocks_ = std::min(all_blocks, launch.max_blocks);
  next_block_ = 0;
  num_threads_ = launch.block.x * launch.block.y * launch.block.z;
  block_order_ = Order(num_blocks_, launch.random);
  thread_order_ = Order(num_threads_, launch.random);
  block_serials_.clear();
  if (indexed_.x != launch.block.x || indexed_.y != launch.block.y || indexed_.z != launch.block.z) {
    indexed_ = launch.block;
    indices_.resize(num_threads_);
    for (uint32_t i = 0; i < num_threads_; ++i) {
      indices_[i] = {i % indexed_.x, i / indexed_.x % indexed_.y, i / (indexed_.x * indexed_.y)};
    }
  }
  std::memset(dynamic_shared_, 0xFF, launch.num_dynamic_bytes);
  ++serial_;
  memory_.begin_launch(launch.arenas, launch.others, launch.call, launch.call->num_bytes(), dynamic_shared_,
                       launch.num_dynamic_bytes, serial_);
  if (serial_ > kLastSerial) {
    report_ = "too many intervals between barriers for the race check";
    return cudaErrorLaunchFailure;
  }
  if (traffic_ != nullptr) {
    traffic_->begin_launch(launch.call->function(), all_blocks);
  }
  if (!next_block()) {
    return cudaSuccess;
  }
  running_kernel = this;
  emulated_block_dimensions = {launch.block.x, launch.block.y, launch.block.z};
  emulated_grid_dimensions = {launch.grid.x, launch.grid.y, launch.grid.z};
  fiber_ = &pool_.take();
  memory_.stack_low = fiber_->stack_low;
  switch_context(machine_, *fiber_);
  running_kernel = checked_kernel = nullptr;
  if (error_ != cudaSuccess) {
    pool_.restart();
    std::fprintf(stderr, "%s\n", report_.c_str());
  } else if (traffic_ != nullptr) {
    traffic_->end_launch();
  }
  launch_ = nullptr;
  return error_;
}

bool KernelRun::next_block() {
  if (next_block_ == num_blocks_) {
    return false;
  }
  const uint64_t block = block_order_(next_block_++);
  const dim3 grid = launch_->grid;
  block_index_ = {static_cast<unsigned int>(block % grid.x), static_cast<unsigned int>(block / grid.x % grid.y),
                  static_cast<unsigned int>(block / grid.x / grid.y)};
  set_block_index(block_index_);
  ++serial_;
  memory_.begin_block(serial_);
  if (launch_->checks) {
    block_serials_.push_back(serial_);
  }
  for (uint32_t i = 0; i < num_threads_; ++i) {
    threads_[i].state = State::kNotStarted;
  }
  for (uint32_t w = 0; w * 32 < num_threads_; ++w) {
    const uint32_t lanes = num_threads_ - w * 32;
    warps_[w].lanes = lanes >= 32 ? 0xFFFFFFFFU : (1U << lanes) - 1;
    warps_[w].ended = warps_[w].waiting = 0;
  }
  num_alive_ = num_threads_;
  num_started_ = num_arrived_ = 0;
  ready_begin_ = ready_end_ = 0;
  return true;
}

void KernelRun::count_access(uintptr_t pc, uintptr_t address, size_t num_bytes, AccessKind kind) {
  const MemoryCheck::Space space = memory_.space_of(address);
  if (space == MemoryCheck::Space::kOther || kind == kAtomic) {
    return;
  }
  if (!traffic_->access(pc, address, num_bytes, kind == kPlainWrite, space == MemoryCheck::Space::kShared,
                        current_->number)) {
    fail(cudaErrorLaunchFailure, "more than " + std::to_string(Traffic::kMaxRequests) +
                                     " requests of warps without a synchronization cannot be counted");
  }
}

// The loop of each fiber: runs the next thread that is ready.
void KernelRun::work() {
  for (;;) {
    if (any_ready()) {
      const uint32_t number = pop_ready();
      pool_.give_back(*fiber_);
      leave_to(number);
    } else if (num_started_ < num_threads_) {
      Thread& thread = threads_[thread_order_(num_started_++)];
      thread.fiber = fiber_;
      enter(thread);
      set_checked(launch_->checks ? this : nullptr);
      launch_->call->run();
      set_checked(nullptr);
      end_thread();
    } else if (num_alive_ != 0) {
      deadlock();
    } else if (!next_block()) {
      pool_.give_back(*fiber_);
      switch_context(*fiber_, machine_);
    }
  }
}

void KernelRun::enter(Thread& thread) {
  thread.state = State::kGoesOn;
  current_ = &thread;
  memory_.who.thread = thread.number;
  set_thread_index(indices_[thread.number]);
}

uint32_t KernelRun::pop_ready() { return ready_[ready_begin_++ % ready_.size()]; }

void KernelRun::leave_to(uint32_t number) {
  Fiber& from = *fiber_;
  Thread& thread = threads_[number];
  enter(thread);
  fiber_ = thread.fiber;
  memory_.stack_low = fiber_->stack_low;
  switch_context(from, *fiber_);
}

// Returns when the current thread may continue.
void KernelRun::wait() {
  Thread& self = *current_;
  if (any_ready()) {
    const uint32_t number = pop_ready();
    if (number == self.number) {
      enter(self);
      return;
    }
    leave_to(number);
  } else if (num_started_ < num_threads_) {
    Fiber& from = *fiber_;
    fiber_ = &pool_.take();
    memory_.stack_low = fiber_->stack_low;
    switch_context(from, *fiber_);
  } else {
    deadlock();
  }
}

void KernelRun::barrier() {
  current_->state = State::kBarrier;
  if (++num_arrived_ == num_alive_) {
    release_barrier();
  }
  wait();
}

void KernelRun::release_barrier() {
  num_arrived_ = 0;
  memory_.who.serial = ++serial_;
  for (uint32_t w = 0; traffic_ != nullptr && w * 32 < num_threads_; ++w) {
    traffic_->end_interval(w);
  }
  for (uint32_t i = 0; i < num_threads_; ++i) {
    const auto number = static_cast<uint32_t>(thread_order_(i));
    if (threads_[number].state == State::kBarrier) {
      threads_[number].state = State::kGoesOn;
      push_ready(number);
    }
  }
}

void KernelRun::end_thread() {
  Thread& thread = *current_;
  thread.state = State::kEnded;
  --num_alive_;
  Warp& warp = warps_[thread.number / 32];
  const uint32_t lane = thread.number % 32;
  warp.ended |= 1U << lane;
  if (traffic_ != nullptr && warp.ended == warp.lanes) {
    traffic_->end_interval(thread.number / 32);
  }
  for (unsigned int left = warp.waiting; left != 0; left &= left - 1) {
    const int other = std::countr_zero(left);
    if ((warp.lane[other].mask >> lane & 1) != 0) {
      fail(cudaErrorLaunchFailure, "lane " + std::to_string(lane) + " ended, and lane " + std::to_string(other) +
                                       " waits for it in " + text_of(warp.lane[other].kind, warp.lane[other].mask));
    }
  }
  if (num_arrived_ != 0 && num_arrived_ == num_alive_) {
    release_barrier();
  }
}

uint64_t KernelRun::shuffle(ShuffleKind kind, unsigned int mask, uint64_t value, unsigned int argument) {
  Thread& self = *current_;
  Warp& warp = warps_[self.number / 32];
  const uint32_t lane = self.number % 32;
  if ((mask >> lane & 1) == 0) {
    fail(cudaErrorLaunchFailure,
         text_of(kind, mask) + " by lane " + std::to_string(lane) + ", which is not in the mask");
  }
  if (const unsigned int absent = mask & (~warp.lanes | warp.ended); absent != 0) {
    const auto first = static_cast<uint32_t>(std::countr_zero(absent));
    fail(cudaErrorLaunchFailure,
         text_of(kind, mask) + " waits for lane " + std::to_string(first) +
             ((warp.lanes >> first & 1) == 0 ? ", which the block does not have" : ", which has ended"));
  }
  warp.lane[lane] = {kind, mask, value, argument, 0};
  for (unsigned int left = warp.waiting; left != 0; left &= left - 1) {
    const int other = std::countr_zero(left);
    const Lane& there = warp.lane[other];
    const bool concerned = (mask >> other & 1) != 0 || (there.mask >> lane & 1) != 0;
    if (concerned && (there.kind != kind || there.mask != mask)) {
      fail(cudaErrorLaunchFailure, "lanes of a warp execute different operations: lane " + std::to_string(lane) +
                                       " in " + text_of(kind, mask) + ", lane " + std::to_string(other) + " in " +
                                       text_of(there.kind, there.mask));
    }
    if (concerned && (warp.waiting & ~mask) == 0) {
      break;  // the other lanes were compared with this one
    }
  }
  warp.waiting |= 1U << lane;
  if ((warp.waiting & mask) == mask) {
    complete(warp, mask);
    enter(self);
  } else {
    self.state = State::kShuffle;
    wait();
  }
  return warp.lane[lane].result;
}

uint64_t KernelRun::shuffle_result(const Warp& warp, uint32_t lane, unsigned int mask) {
  const Lane& self = warp.lane[lane];
  const uint32_t source = self.kind == ShuffleKind::kXor ? lane ^ (self.argument & 31)
                          : self.argument > lane         ? lane
                                                         : lane - self.argument;
  if ((mask >> source & 1) == 0) {
    fail(cudaErrorLaunchFailure, text_of(self.kind, mask) + ": lane " + std::to_string(lane) +
                                     " takes the value of lane " + std::to_string(source) +
                                     ", which is not in the mask");
  }
  return warp.lane[source].value;
}

void KernelRun::complete(Warp& warp, unsigned int mask) {
  warp.waiting &= ~mask;
  const uint32_t base = static_cast<uint32_t>(&warp - warps_.data()) * 32;
  if (traffic_ != nullptr && mask == (warp.lanes & ~warp.ended)) {
    traffic_->end_interval(base / 32);
  }
  for (unsigned int left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    warp.lane[lane].result = shuffle_result(warp, lane, mask);
    if (base + lane != current_->number) {
      threads_[base + lane].state = State::kGoesOn;
      push_ready(base + lane);
    }
  }
}

std::string KernelRun::thread_text(uint32_t number) const { return index_text(indices_[number]); }

std::string KernelRun::block_text_of(uint32_t serial) const {
  uint64_t i = 0;
  while (i + 1 < block_serials_.size() && block_serials_[i + 1] <= serial) {
    ++i;
  }
  const uint64_t block = block_order_(i);
  const dim3 grid = launch_->grid;
  return index_text({static_cast<unsigned int>(block % grid.x), static_cast<unsigned int>(block / grid.x % grid.y),
                     static_cast<unsigned int>(block / grid.x / grid.y)});
}

void KernelRun::deadlock() {
  std::string text = "deadlock: no thread of the block can go on";
  const auto place = [&](const Thread& thread) {
    if (thread.state == State::kBarrier) {
      return std::string("wait in __syncthreads");
    }
    if (thread.state == State::kShuffle) {
      const Lane& lane = warps_[thread.number / 32].lane[thread.number % 32];
      return "wait in " + text_of(lane.kind, lane.mask);
    }
    return std::string("have ended");
  };
  for (uint32_t begin = 0; begin < num_threads_;) {
    uint32_t end = begin + 1;
    while (end < num_threads_ && place(threads_[end]) == place(threads_[begin])) {
      ++end;
    }
    text += "\n  threads " + thread_text(begin) + " to " + thread_text(end - 1) + " " + place(threads_[begin]);
    begin = end;
  }
  fail(cudaErrorLaunchFailure, text);
}

void KernelRun::fail(cudaError_t error, const std::string& what) {
  error_ = error;
  report_ = what + "\n  in kernel '" + function_name(launch_->call->function()) + "', block " +
            index_text(block_index_) + ", thread " + (current_ != nullptr ? thread_text(current_->number) : "?");
  switch_context(*fiber_, machine_);
  std::abort();  // a failed kernel never continues
}

}  // namespace cuda_emulation
