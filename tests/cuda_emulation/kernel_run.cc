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

constexpr uint32_t kLastTime = 0xFFFF;
constexpr uint32_t kLastSerial = 0xF0000000;

std::string index_text(uint3 v) {
  char text[48];
  std::snprintf(text, sizeof(text), "(%u,%u,%u)", v.x, v.y, v.z);
  return text;
}

const char* name_of(WarpOp op) {
  switch (op) {
    case WarpOp::kSync: return "__syncwarp";
    case WarpOp::kBallot: return "__ballot_sync";
    case WarpOp::kAny: return "__any_sync";
    case WarpOp::kAll: return "__all_sync";
    case WarpOp::kShuffle: return "__shfl_sync";
    case WarpOp::kShuffleUp: return "__shfl_up_sync";
    case WarpOp::kShuffleDown: return "__shfl_down_sync";
    case WarpOp::kShuffleXor: return "__shfl_xor_sync";
    case WarpOp::kAdd: return "__reduce_add_sync";
    case WarpOp::kMin:
    case WarpOp::kSignedMin: return "__reduce_min_sync";
    case WarpOp::kMax:
    case WarpOp::kSignedMax: return "__reduce_max_sync";
    case WarpOp::kAnd: return "__reduce_and_sync";
    case WarpOp::kOr: return "__reduce_or_sync";
    case WarpOp::kXor: return "__reduce_xor_sync";
  }
  return "";
}

const char* name_of(Barrier barrier) {
  switch (barrier) {
    case Barrier::kSync: return "__syncthreads";
    case Barrier::kOr: return "__syncthreads_or";
    case Barrier::kAnd: return "__syncthreads_and";
    case Barrier::kCount: return "__syncthreads_count";
  }
  return "";
}

std::string mask_text(unsigned int mask) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", mask);
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
    traffic_->begin_launch(launch.call->function(), all_blocks, num_threads_);
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
  begin_interval();
  num_alive_ = num_threads_;
  num_started_ = num_arrived_ = 0;
  num_true_ = 0;
  ready_begin_ = ready_end_ = 0;
  return true;
}

// No __syncwarp has ordered any accesses yet.
void KernelRun::begin_interval() {
  for (uint32_t w = 0; w * 32 < num_threads_; ++w) {
    Warp& warp = warps_[w];
    warp.time = warp.all_at = 0;
    if (warp.some) {
      warp.pairs = {};
      warp.some = false;
    }
  }
}

void KernelRun::count_access(uintptr_t pc, uintptr_t address, size_t num_bytes, AccessKind kind) {
  const MemoryCheck::Space space = memory_.space_of(address);
  if (space == MemoryCheck::Space::kOther) {
    return;
  }
  if (kind == kAtomic) {
    traffic_->add_atomic();
  } else if (!traffic_->access(pc, address, num_bytes, kind == kPlainWrite, space == MemoryCheck::Space::kShared,
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
  memory_.who.time = warps_[thread.number / 32].time;
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

int KernelRun::barrier(Barrier kind, int predicate) {
  if (num_arrived_ != 0 && kind != barrier_kind_) {
    fail(cudaErrorLaunchFailure, std::string("threads execute different barriers: ") + name_of(kind) +
                                     " here, others wait in " + name_of(barrier_kind_));
  }
  barrier_kind_ = kind;
  current_->state = State::kBarrier;
  num_true_ += predicate != 0 ? 1 : 0;
  if (++num_arrived_ == num_alive_) {
    release_barrier();
  }
  wait();
  return barrier_result_;  // of this barrier: the next one cannot complete without this thread
}

void KernelRun::release_barrier() {
  const auto arrived = static_cast<int>(num_arrived_);
  switch (barrier_kind_) {
    case Barrier::kSync: barrier_result_ = 0; break;
    case Barrier::kOr: barrier_result_ = num_true_ != 0 ? 1 : 0; break;
    case Barrier::kAnd: barrier_result_ = num_true_ == arrived ? 1 : 0; break;
    case Barrier::kCount: barrier_result_ = num_true_; break;
  }
  num_arrived_ = 0;
  num_true_ = 0;
  memory_.who.serial = ++serial_;
  begin_interval();
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
                                       " waits for it in " + name_of(warp.lane[other].op) + "(" +
                                       mask_text(warp.lane[other].mask) + ")");
    }
  }
  if (num_arrived_ != 0 && num_arrived_ == num_alive_) {
    release_barrier();
  }
}

uint64_t KernelRun::warp_operation(WarpOp op, unsigned int mask, uint64_t value, int argument, int width) {
  Thread& self = *current_;
  Warp& warp = warps_[self.number / 32];
  const uint32_t lane = self.number % 32;
  const auto text = [&] { return std::string(name_of(op)) + "(" + mask_text(mask) + ")"; };
  if ((mask >> lane & 1) == 0) {
    fail(cudaErrorLaunchFailure, text() + " by lane " + std::to_string(lane) + ", which is not in the mask");
  }
  if (const unsigned int absent = mask & (~warp.lanes | warp.ended); absent != 0) {
    const auto first = static_cast<uint32_t>(std::countr_zero(absent));
    fail(cudaErrorLaunchFailure,
         text() + " waits for lane " + std::to_string(first) +
             ((warp.lanes >> first & 1) == 0 ? ", which the block does not have" : ", which has ended"));
  }
  warp.lane[lane] = {op, mask, value, argument, width, 0};
  for (unsigned int left = warp.waiting; left != 0; left &= left - 1) {
    const int other = std::countr_zero(left);
    const Lane& there = warp.lane[other];
    const bool concerned = (mask >> other & 1) != 0 || (there.mask >> lane & 1) != 0;
    if (concerned && (there.op != op || there.mask != mask)) {
      fail(cudaErrorLaunchFailure, "lanes of a warp execute different operations: lane " + std::to_string(lane) +
                                       " in " + text() + ", lane " + std::to_string(other) + " in " +
                                       name_of(there.op) + "(" + mask_text(there.mask) + ")");
    }
    if (concerned && (warp.waiting & ~mask) == 0) {
      break;  // the other lanes were compared with this one
    }
  }
  warp.waiting |= 1U << lane;
  if ((warp.waiting & mask) == mask) {
    complete(warp, mask, op);
    enter(self);
  } else {
    self.state = State::kWarp;
    wait();
  }
  return warp.lane[lane].result;
}

uint64_t KernelRun::shuffle_result(const Warp& warp, uint32_t lane, unsigned int mask) {
  const Lane& self = warp.lane[lane];
  const int width = self.width;
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fail(cudaErrorLaunchFailure, std::string(name_of(self.op)) + " with width " + std::to_string(width));
  }
  const int own = static_cast<int>(lane);
  const int part = own & ~(width - 1);  // first lane of this part
  int source = own;
  switch (self.op) {
    case WarpOp::kShuffle: source = part | (self.argument & (width - 1)); break;
    case WarpOp::kShuffleUp: source = self.argument > own - part ? own : own - self.argument; break;
    case WarpOp::kShuffleDown: source = self.argument > part + width - 1 - own ? own : own + self.argument; break;
    default:
      source = own ^ (self.argument & 31);
      source = source >= part + width ? own : source;
      break;
  }
  if (self.op != WarpOp::kShuffle && self.op != WarpOp::kShuffleXor && self.argument < 0) {
    source = own;
  }
  if ((mask >> source & 1) == 0) {
    fail(cudaErrorLaunchFailure, std::string(name_of(self.op)) + "(" + mask_text(mask) + "): lane " +
                                     std::to_string(own) + " takes the value of lane " + std::to_string(source) +
                                     ", which is not in the mask");
  }
  return warp.lane[source].value;
}

void KernelRun::complete(Warp& warp, unsigned int mask, WarpOp op) {
  const auto first = static_cast<uint32_t>(std::countr_zero(mask));
  uint64_t all = warp.lane[first].value;
  const bool reduces = op >= WarpOp::kAdd;
  const bool votes = op == WarpOp::kBallot || op == WarpOp::kAny || op == WarpOp::kAll;
  unsigned int ballot = 0;
  for (unsigned int left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const uint64_t value = warp.lane[lane].value;
    ballot |= value != 0 ? 1U << lane : 0U;
    if (!reduces || lane == first) {
      continue;
    }
    const auto a = static_cast<uint32_t>(all), b = static_cast<uint32_t>(value);
    const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
    switch (op) {
      case WarpOp::kAdd: all = a + b; break;
      case WarpOp::kMin: all = b < a ? b : a; break;
      case WarpOp::kMax: all = a < b ? b : a; break;
      case WarpOp::kSignedMin: all = sb < sa ? b : a; break;
      case WarpOp::kSignedMax: all = sa < sb ? b : a; break;
      case WarpOp::kAnd: all = a & b; break;
      case WarpOp::kOr: all = a | b; break;
      default: all = a ^ b; break;
    }
  }
  if (votes) {
    all = op == WarpOp::kBallot ? ballot : op == WarpOp::kAny ? (ballot != 0 ? 1 : 0) : (ballot == mask ? 1 : 0);
  }
  if (op == WarpOp::kSync) {
    warp.time = warp.time < kLastTime ? warp.time + 1 : kLastTime;
    if (mask == (warp.lanes & ~warp.ended)) {
      warp.all_at = warp.time;
    } else {
      warp.some = true;
      for (unsigned int a = mask; a != 0; a &= a - 1) {
        for (unsigned int b = mask; b != 0; b &= b - 1) {
          warp.pairs[static_cast<size_t>(std::countr_zero(a))][static_cast<size_t>(std::countr_zero(b))] = warp.time;
        }
      }
    }
  }
  warp.waiting &= ~mask;
  const uint32_t base = static_cast<uint32_t>(&warp - warps_.data()) * 32;
  if (traffic_ != nullptr && mask == (warp.lanes & ~warp.ended)) {
    traffic_->end_interval(base / 32);
  }
  for (unsigned int left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    warp.lane[lane].result = reduces || votes || op == WarpOp::kSync ? all : shuffle_result(warp, lane, mask);
    if (base + lane != current_->number) {
      threads_[base + lane].state = State::kGoesOn;
      push_ready(base + lane);
    }
  }
}

bool KernelRun::synchronised_since(uint32_t warp, uint32_t lane_a, uint32_t lane_b, uint32_t time) const {
  const Warp& w = warps_[warp];
  const uint32_t pair = w.some ? w.pairs[lane_a][lane_b] : 0;
  const uint32_t last = pair > w.all_at ? pair : w.all_at;
  return time < last || last == kLastTime;
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
      return std::string("wait in ") + name_of(barrier_kind_);
    }
    if (thread.state == State::kWarp) {
      const Lane& lane = warps_[thread.number / 32].lane[thread.number % 32];
      return std::string("wait in ") + name_of(lane.op) + "(" + mask_text(lane.mask) + ")";
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
