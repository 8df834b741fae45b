#include <tandem/distributed/group/group_queue.h>

#include <algorithm>
#include <utility>

#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::chrono::hours kLongTimeout{1};

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// The error of the call whose last operation this is.
std::exception_ptr error_of(const Operation& operation) {
  for (const auto& earlier : operation.earlier) {
    if (earlier->error) return earlier->error;
  }
  return operation.error;
}

void complete(const Operation& operation) {
  const std::exception_ptr error = error_of(operation);
  error ? operation.promise->set_exception(error) : operation.promise->set_value();
}

void trace_launch(const Operation& operation, int rank) {
  for (const auto& earlier : operation.earlier) trace_launch(*earlier, rank);
  const int64_t now = trace_now_ns();
  const int thread = RankContext::current().trace_thread;
  record_trace({"launch " + operation.shown_name(), "comm", rank, thread, now, now, 0});
}

thread_local bool defers_completions = false;

}  // namespace

DeferCompletions::DeferCompletions() : previous(std::exchange(defers_completions, true)) {}
DeferCompletions::~DeferCompletions() { defers_completions = previous; }

GroupQueue::GroupQueue(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend,
                       std::chrono::milliseconds stall)
    : executor_(options, std::move(backend), stall, mutex_) {
  const auto listener = [this, is_written = false](const FailureLatch::Known& known) mutable {
    wake();
    const auto cause = known.cause(executor_.options());
    // fail_group() records this rank's own failure.
    if (!cause || cause->member == executor_.options().rank || std::exchange(is_written, true)) return;
    executor_.recorder().write(failure_text("failed:", cause->culprit, cause->reason), false);
  };
  try {
    executor_.latch()->listen(listener);
  } catch (...) {
    executor_.latch()->close();
    throw;
  }
}

GroupQueue::~GroupQueue() { executor_.latch()->close(); }

void GroupQueue::set_backend(std::unique_ptr<Backend> backend) {
  std::lock_guard lock(mutex_);
  notify();  // first: with a backend it wakes only the thread in do_sleep
  executor_.set_backend(std::move(backend));
}

// --- starting ---

void GroupQueue::enqueue(const std::shared_ptr<Operation>& operation, bool starts_now) {
  for (const auto& earlier : operation->earlier) enqueue(earlier, std::exchange(starts_now, false));
  if (operation->number() >= 0) {
    static_cast<CollectiveOperation&>(*operation).collective.seq = ++last_seq_;
  } else {
    static_cast<Message&>(*operation).transfer.seq = ++last_transfer_seq_;
  }
  executor_.recorder().record(*operation, starts_now);
  arrived_.push_back(operation);
  ++num_operations_;
  if (has_executor_ || executor_.backend() == nullptr) notify();
}

/// Notifies the thread that runs the group, or looks after it while members are joining.
void GroupQueue::notify() {
  news_.fetch_add(1);
  if (Backend* const backend = executor_.backend()) {
    // Either this thread sees the sleeper, or the sleeper, which checks again after it has registered, sees the news.
    if (sleepers_.load() > 0) backend->do_wake();
    return;
  }
  for_waiters_.notify_all();
  for_worker_.notify_one();
}

void GroupQueue::wake() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (executor_.backend() == nullptr) lock.lock();
  notify();
}

void GroupQueue::run(Operation& operation) {
  std::unique_lock lock(mutex_);
  enqueue({std::shared_ptr<void>(), &operation}, !has_work() && !has_executor_);  // the caller owns it
  run_until(
      lock, [&] { return operation.done; }, Clock::time_point::max());
  lock.unlock();
  if (const std::exception_ptr error = error_of(operation)) std::rethrow_exception(error);
  if (operation.join) operation.join();
}

Work GroupQueue::start_single_rank(std::span<CollectiveOperation* const> operations) {
  const Promise<void> done;
  try {
    for (CollectiveOperation* const operation : operations) {
      std::unique_lock lock(mutex_);
      operation->collective.seq = ++last_seq_;
      executor_.recorder().record(*operation, true);
      lock.unlock();
      executor_.run_single_rank(*operation);
    }
    done.set_value();
  } catch (const CommError&) {
    done.set_exception(std::current_exception());
  }
  return done.future();
}

Work GroupQueue::make_handle(const std::shared_ptr<Operation>& operation) {
  operation->promise.emplace();
  operation->promise->set_help([group = weak_from_this(), weak = std::weak_ptr(operation)](Clock::time_point until) {
    const auto self = group.lock();
    const auto waited = weak.lock();
    if (self != nullptr && waited != nullptr) self->wait(*waited, until);
    return false;
  });
  operation->promise->set_join(operation->join);
  if (trace_enabled()) trace_launch(*operation, executor_.own_job_rank());
  return operation->promise->future();
}

Work GroupQueue::start(std::shared_ptr<Operation> operation) {
  return std::move(start(Operations{std::move(operation)}).front());
}

std::vector<Work> GroupQueue::start(const Operations& operations) {
  std::vector<Work> works;
  if (operations.empty()) return works;
  for (const auto& operation : operations) works.push_back(make_handle(operation));
  {
    std::lock_guard lock(mutex_);
    // First: if no worker can be started, nothing is queued.
    if (!worker_.joinable()) {
      worker_ = start_rank_thread([self = shared_from_this()] {
        set_trace_thread(kGroupWorkerThread);
        self->work();
      });
    }
    for (const auto& operation : operations) enqueue(operation);
  }
  for_worker_.notify_one();
  wake();  // the worker may wait for peers
  return works;
}

// --- running ---

void GroupQueue::wait(const Operation& operation, Clock::time_point until) {
  std::unique_lock lock(mutex_);
  run_until(
      lock, [&] { return operation.done; }, until);
}

bool GroupQueue::progress() {
  std::unique_lock lock(mutex_);
  while (has_work() && !has_executor_) {
    if (execute_nonblocking(lock)) return true;
  }
  return has_work();
}

void GroupQueue::end_operations() {
  std::unique_lock lock(mutex_);
  if (const size_t count = num_operations_; count > 0) {
    lock.unlock();
    executor_.fail_group({.culprit = executor_.own_job_rank(),
                          .reason = str("destroyed its group while ", count,
                                        count == 1 ? " operation was" : " operations were", " queued")});
    lock.lock();
  }
  run_until(
      lock, [&] { return !has_work(); }, Clock::time_point::max());
}

void GroupQueue::close() {
  executor_.latch()->close();
  if (executor_.latch()->is_failing()) executor_.cancel();
  std::unique_lock lock(mutex_);
  stop_ = true;
  std::thread worker = std::move(worker_);
  lock.unlock();
  for_worker_.notify_one();
  wake();
  if (worker.get_id() == std::this_thread::get_id()) {
    worker.detach();  // a continuation dropped the last handle; the worker holds this object until it ends
  } else if (worker.joinable()) {
    worker.join();
  }
}

/// The worker: makes progress unless a waiting thread does.
void GroupQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_worker_.wait(
        lock, [&] { return stop_ || !deferred_.empty() || (has_work() && num_waiters_ == 0 && !has_executor_); });
    while (!deferred_.empty()) {
      const auto operations = std::exchange(deferred_, {});
      lock.unlock();
      for (const auto& operation : operations) complete(*operation);
      lock.lock();
    }
    if (stop_) return;
    if (!has_work() || num_waiters_ > 0 || has_executor_) continue;
    const uint64_t news = news_;
    const auto until = execute_nonblocking(lock);
    if (!until) continue;
    const auto has_changed = [&] {
      return stop_ || !deferred_.empty() || num_waiters_ > 0 || has_executor_ || !has_work() || news_ != news;
    };
    Backend* const backend = executor_.backend();
    if (backend == nullptr) {
      for_worker_.wait_until(lock, std::min(*until, Clock::now() + kLongTimeout), has_changed);
      continue;
    }
    lock.unlock();
    sleepers_.fetch_add(1);
    backend->do_sleep(
        [&] {
          std::unique_lock inner(mutex_);
          return has_changed() || !execute_nonblocking(inner);
        },
        *until);
    sleepers_.fetch_sub(1);
    lock.lock();
  }
}

/// Runs the group on this thread until is_over() or `until` has passed.
void GroupQueue::run_until(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> is_over, Clock::time_point until) {
  ++num_waiters_;
  while (!is_over()) {
    if (!has_executor_) {
      if (!execute_blocking(lock, until)) break;
    } else if (until == Clock::time_point::max()) {
      for_waiters_.wait(lock);
    } else if (for_waiters_.wait_until(lock, until) == std::cv_status::timeout) {
      break;
    }
  }
  --num_waiters_;
  if (num_waiters_ == 0 && has_work()) for_worker_.notify_one();
}

/// Executes operations, waiting for peers, until one of them has ended; while members are joining, until anything has
/// changed. Returns false if `until` passed first.
bool GroupQueue::execute_blocking(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  Backend* const backend = executor_.backend();
  if (backend == nullptr) {
    const uint64_t news = news_;
    const auto next = execute_nonblocking(lock);
    const auto has_changed = [&] { return has_executor_ || news_ != news; };
    if (next) for_waiters_.wait_until(lock, std::min({until, *next, Clock::now() + kLongTimeout}), has_changed);
    return !next || Clock::now() < until;
  }
  acquire_executor(lock);
  Advance result = Advance::kIdle;
  do {
    int idle = 0;
    const int longest = backend->max_polls();
    while (result != Advance::kDone && idle < longest) {
      result = step();
      idle = result == Advance::kIdle ? idle + 1 : 0;
      if (idle > 0) pause_briefly();
    }
    if (result == Advance::kDone) break;
    sleepers_.fetch_add(1);
    backend->do_sleep(
        [&] {
          result = step();
          return result != Advance::kIdle;
        },
        std::min(until, executor_.wake_at()));
    sleepers_.fetch_sub(1);
    if (result == Advance::kIdle && advance_or_expire()) result = Advance::kDone;
  } while (result != Advance::kDone && Clock::now() < until);
  release_executor(lock);
  return result == Advance::kDone;
}

/// Executes operations without waiting. Returns nothing if an operation has ended, else the time of the next check.
std::optional<GroupQueue::Clock::time_point> GroupQueue::execute_nonblocking(std::unique_lock<std::mutex>& lock) {
  acquire_executor(lock);
  std::optional<Clock::time_point> next;
  if (!advance_or_expire()) next = executor_.wake_at();
  release_executor(lock);
  return next;
}

void GroupQueue::acquire_executor(std::unique_lock<std::mutex>& lock) {
  has_executor_ = true;
  taken_ = news_.load(std::memory_order_relaxed);
  executor_.add(arrived_);
  lock.unlock();
}

void GroupQueue::release_executor(std::unique_lock<std::mutex>& lock) {
  auto& ended = executor_.take_ended();
  lock.lock();
  has_executor_ = false;
  Operations promised;
  for (auto& operation : ended) {
    operation->done = true;
    if (!operation->is_internal) --num_operations_;
    if (operation->promise) promised.push_back(std::move(operation));
  }
  ended.clear();
  if (num_waiters_ > 0) {
    for_waiters_.notify_all();
  } else if (has_work()) {
    for_worker_.notify_one();
  }
  if (promised.empty()) return;
  if (defers_completions) {
    deferred_.insert(deferred_.end(), promised.begin(), promised.end());
    for_worker_.notify_one();
    notify();
    return;
  }
  lock.unlock();
  for (const auto& operation : promised) complete(*operation);  // runs continuations
  lock.lock();
}

Advance GroupQueue::step() {
  if (news_.load() != taken_) {
    std::lock_guard lock(mutex_);
    taken_ = news_.load(std::memory_order_relaxed);
    executor_.add(arrived_);
  }
  return executor_.step();
}

/// Advances all operations until nothing moves. Returns whether one has ended, because it is complete or was late.
bool GroupQueue::advance_or_expire() {
  Advance result = Advance::kMoved;
  Clock::time_point now;
  while (result == Advance::kMoved) {
    now = Clock::now();  // before the step, because data that arrived in time is not late
    result = step();
  }
  return result == Advance::kDone || executor_.check_times(now);
}

}}}  // namespace tandem::v0::distributed
