// A pool of workers that callers borrow.
//
// A call borrows idle workers from the pool (and creates missing ones), offers the job to each through the worker's
// slot, runs pieces itself, and returns the workers. A slot holds 0 (idle), the job's address (offered), or the address
// + 1 (running). When no piece is left, offers that no worker has accepted are withdrawn, so a caller waits only for
// running pieces, never for a thread to be scheduled. Workers are never destroyed, so callers and workers may read
// slots at any time.
#include <tandem/base/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/small_vector.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 {

namespace {

// Polls before a waiting thread sleeps: some tens of microseconds in total, the cost of a wake-up.
constexpr int kSpins = 200;

// Whether this thread is running a piece. Not part of RankContext, which pool threads share with their caller.
constinit thread_local bool inside_piece = false;

struct Job {
  FunctionRef<void(int64_t, int64_t)> fn;
  int64_t n;
  int64_t grain;
  int64_t num_pieces;
  RankContext& context;
  std::atomic<int64_t> next_piece{0};
  std::mutex mutex{};         // guards failed_piece and error
  int64_t failed_piece = -1;  // lowest index of a piece that threw
  std::exception_ptr error{};

  void run_piece(int64_t piece) noexcept {
    try {
      fn(piece * grain, std::min(n, (piece + 1) * grain));
    } catch (...) {
      std::lock_guard lock(mutex);
      if (failed_piece < 0 || piece < failed_piece) {
        failed_piece = piece;
        error = std::current_exception();
      }
    }
  }
  void run_pieces() noexcept {
    inside_piece = true;
    for (int64_t piece; (piece = next_piece.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) run_piece(piece);
    inside_piece = false;
  }
};

class Worker {
 public:
  Worker() {
    start_thread([this] { run(); }).detach();
  }

  void offer(Job& job) { store_and_wake(reinterpret_cast<uintptr_t>(&job), worker_sleeps_); }

  /// Withdraws the offer, or waits until the worker has finished with the job.
  void take_back(Job& job) {
    uintptr_t expected = reinterpret_cast<uintptr_t>(&job);
    if (slot_.compare_exchange_strong(expected, 0)) return;
    wait_while([](uintptr_t slot) { return slot != 0; }, caller_sleeps_);
  }

 private:
  void run() {
    use_all_cores();  // ranks pinned to different cores share the pool
    while (true) {
      wait_while([](uintptr_t slot) { return slot == 0; }, worker_sleeps_);
      uintptr_t offered = slot_.load();
      if (offered == 0 || !slot_.compare_exchange_strong(offered, offered + 1)) continue;  // withdrawn
      Job& job = *reinterpret_cast<Job*>(offered);
      {
        RankContext::Use use(job.context);
        job.run_pieces();
      }
      store_and_wake(0, caller_sleeps_);
    }
  }

  // The sleeping side sets its flag and then reads the slot; the waking side writes the slot and then reads the flag.
  // All four accesses are seq_cst, so at least one side sees the other's write.
  void store_and_wake(uintptr_t value, std::atomic<bool>& sleeps) {
    slot_.store(value);
    if (sleeps.load()) {
      std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
  }
  template <class Condition>
  void wait_while(Condition condition, std::atomic<bool>& sleeps) {
    for (int i = 0; i < kSpins; ++i) {
      if (!condition(slot_.load(std::memory_order_acquire))) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    sleeps.store(true);
    changed_.wait(lock, [&] { return !condition(slot_.load()); });
    sleeps.store(false);
  }

  std::atomic<uintptr_t> slot_{0};
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<bool> caller_sleeps_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

using Team = SmallVector<Worker*, 32>;

/// The idle workers. Last in, first out: a caller gets the workers of its previous call, which are still awake.
class Pool {
 public:
  static Pool& instance() {
    static Pool* const pool = new Pool;  // never destroyed: its workers run until the process ends
    return *pool;
  }

  Team borrow(int64_t count) {
    Team team;
    std::lock_guard lock(mutex_);
    for (; count > 0 && !idle_.empty(); --count) {
      team.push_back(idle_.back());
      idle_.pop_back();
    }
    try {
      for (; count > 0; --count) team.push_back(new Worker);
    } catch (const ResourceError& e) {
      warn_fewer_threads("parallel_for", e);  // the caller runs the remaining pieces itself
    }
    return team;
  }
  void give_back(const Team& team) {
    std::lock_guard lock(mutex_);
    for (size_t i = team.size(); i-- > 0;) idle_.push_back(team[i]);
  }

 private:
  std::mutex mutex_;
  std::vector<Worker*> idle_;
};

/// TANDEM_NUM_THREADS; 0 if it is not set.
int threads_of_environment() {
  static const int64_t threads = [] {
    const std::optional<int64_t> n = env_int("TANDEM_NUM_THREADS");
    TANDEM_CHECK(ValueError, !n || (*n >= 1 && *n <= 4096), "TANDEM_NUM_THREADS is ", *n, ", expected 1 to 4096");
    return n.value_or(0);
  }();
  return static_cast<int>(threads);
}

}  // namespace

int num_threads() {
  const RankContext& context = RankContext::current();
  if (context.num_threads > 0) return context.num_threads;
  if (const int threads = threads_of_environment()) return threads;
  return std::max(1, available_cores() / std::max(1, context.local_world_size));
}

void set_num_threads(int n) {
  TANDEM_CHECK(ValueError, n >= 0, "set_num_threads: ", n, " is negative");
  RankContext::current().num_threads = n;
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> fn) {
  if (n <= 0) return;
  TANDEM_CHECK(ValueError, grain > 0, "parallel_for: grain is ", grain, ", must be positive");
  if (n <= grain) {
    fn(0, n);
    return;
  }
  const int64_t num_pieces = ceil_div(n, grain);
  const int64_t helpers = inside_piece ? 0 : std::min<int64_t>(num_threads(), num_pieces) - 1;
  Job job{fn, n, grain, num_pieces, RankContext::current()};
  if (helpers == 0) {
    for (int64_t piece = 0; piece < num_pieces; ++piece) job.run_piece(piece);
  } else {
    const Team team = Pool::instance().borrow(helpers);
    for (Worker* worker : team) worker->offer(job);
    job.run_pieces();
    for (Worker* worker : team) worker->take_back(job);
    Pool::instance().give_back(team);
  }
  if (job.error) std::rethrow_exception(job.error);
}

}}  // namespace tandem::v0
