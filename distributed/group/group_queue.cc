#include <tandem/distributed/group/group_queue.h>

#include <algorithm>
#include <functional>

#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/backends/single/single_rank.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A shared_ptr without ownership: the owner keeps the object until it is done.
template <class Pending>
std::shared_ptr<Pending> borrow(Pending& operation) {
  return std::shared_ptr<Pending>(std::shared_ptr<void>(), &operation);
}

void complete(const Operation& operation) {
  if (operation.error) {
    operation.promise->set_exception(operation.error);
  } else {
    operation.promise->set_value();
  }
}

thread_local bool defers_completions = false;

/// Joins the handles of several operations into one.
struct WhenAll {
  std::mutex mutex;
  size_t left;
  std::exception_ptr error;  // first error
  Promise<void> promise;

  explicit WhenAll(size_t count) : left(count) {}

  void one_is_done(const std::exception_ptr& its_error) {
    {
      std::lock_guard lock(mutex);
      if (!error) error = its_error;
      if (--left > 0) return;
    }
    if (error) {
      promise.set_exception(error);
    } else {
      promise.set_value();
    }
  }
};

}  // namespace

DeferCompletions::DeferCompletions() : previous_(std::exchange(defers_completions, true)) {}
DeferCompletions::~DeferCompletions() { defers_completions = previous_; }

GroupQueue::GroupQueue(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend,
                       std::chrono::milliseconds stall)
    : options_(options), backend_(std::move(backend)), latch_(options_), watch_(options, stall, latch_, recorder_) {}

void GroupQueue::watch_failures() {
  latch_.listen([this](const FailureLatch::Known& known) { on_failure_change(known); });
}

// --- starting ---

void GroupQueue::enqueue(std::shared_ptr<CollectiveOperation> operation) {
  operation->collective.seq = ++last_seq_;
  recorder_.record(*operation, queue_.empty() && !has_executor_ && !operation->promise);
  queue_.push_back(std::move(operation));
  if (has_executor_) notify_executor();
}

void GroupQueue::enqueue(std::shared_ptr<Message> message) {
  message->transfer.seq = ++last_transfer_seq_;
  recorder_.record(*message);
  arrived_.push_back(std::move(message));
  ++num_messages_;
  if (has_executor_) notify_executor();
}

/// Notifies the thread that runs the group of new operations.
void GroupQueue::notify_executor() {
  has_arrivals_.store(true);
  wake_executor();
}

void GroupQueue::run(CollectiveOperation& operation) {
  std::unique_lock lock(mutex_);
  enqueue(borrow(operation));
  run_until(lock, operation, Clock::time_point::max());
  lock.unlock();
  if (operation.error) std::rethrow_exception(operation.error);
}

void GroupQueue::run_single_rank(CollectiveOperation& operation) {
  {
    std::lock_guard lock(mutex_);
    operation.collective.seq = ++last_seq_;
    recorder_.record(operation, true);
  }
  try {
    begin(operation);
  } catch (const GroupError& error) {
    fail(operation, error);
    std::rethrow_exception(operation.error);
  }
  copy_single_rank(operation.collective);
  finish(operation);
  if (operation.error) std::rethrow_exception(operation.error);
}

Work GroupQueue::start_single_rank(CollectiveOperation& operation) {
  const Promise<void> done;
  try {
    run_single_rank(operation);
    done.set_value();
  } catch (const CommError&) {
    done.set_exception(std::current_exception());
  }
  return done.future();
}

void GroupQueue::run(const std::shared_ptr<Message>& message) {
  std::unique_lock lock(mutex_);
  enqueue(message);
  run_until(lock, *message, Clock::time_point::max());
  lock.unlock();
  if (message->error) std::rethrow_exception(message->error);
  if (message->join) message->join();
}

void GroupQueue::run(std::span<const std::shared_ptr<CollectiveOperation>> operations) {
  std::unique_lock lock(mutex_);
  for (const auto& operation : operations) enqueue(operation);
  run_until(lock, *operations.back(), Clock::time_point::max());
  lock.unlock();
  for (const auto& operation : operations) {
    if (operation->error) std::rethrow_exception(operation->error);
  }
}

Work GroupQueue::start(const std::shared_ptr<CollectiveOperation>& operation) {
  Work work = make_work(operation);
  queue_all(std::span(&operation, 1));
  return work;
}

std::vector<Work> GroupQueue::start(std::span<const std::shared_ptr<Message>> messages) {
  std::vector<Work> works;
  for (const auto& message : messages) works.push_back(make_work(message));
  queue_all(messages);
  return works;
}

Work GroupQueue::start(std::span<const std::shared_ptr<CollectiveOperation>> operations) {
  if (operations.size() == 1) return start(operations.front());
  const auto joined = std::make_shared<WhenAll>(operations.size());
  joined->promise.set_help(make_help(operations.back()));
  joined->promise.set_join(operations.back()->join);
  for (const auto& operation : operations) {
    const Work one = make_work(operation);
    one.then([joined, one] { joined->one_is_done(one.exception()); });
  }
  queue_all(operations);
  return joined->promise.future();
}

Work GroupQueue::make_work(const std::shared_ptr<Operation>& operation) {
  operation->promise.emplace();
  operation->promise->set_help(make_help(operation));
  operation->promise->set_join(operation->join);
  return operation->promise->future();
}

std::function<bool(Backend::Clock::time_point)> GroupQueue::make_help(const std::shared_ptr<Operation>& operation) {
  return [group = weak_from_this(), weak = std::weak_ptr(operation)](Clock::time_point deadline) {
    const auto self = group.lock();
    const auto waited = weak.lock();
    if (self == nullptr || waited == nullptr) return false;
    std::unique_lock lock(self->mutex_);
    self->run_until(lock, *waited, deadline);
    return false;
  };
}

template <class Pending>
void GroupQueue::queue_all(std::span<const std::shared_ptr<Pending>> operations) {
  if (trace_enabled()) {
    const int thread = RankContext::current().trace_thread;
    for (const auto& operation : operations) {
      const int64_t now = trace_now_ns();
      record_trace({"launch " + operation->shown_name(), "comm", own_job_rank(), thread, now, now, 0});
    }
  }
  {
    std::lock_guard lock(mutex_);
    // First: if no worker can be started, nothing is queued.
    if (!operations.empty() && !worker_.joinable()) start_worker();
    for (const auto& operation : operations) enqueue(operation);
  }
  for_worker_.notify_one();
  wake_executor();
}

void GroupQueue::wake_executor() {
  // Either this thread sees the sleeper, or the sleeper, which checks again after it has registered, sees the new work.
  if (sleepers_.load() > 0) backend_->do_wake();
}

void GroupQueue::abort(const std::string& reason) {
  suppress_deferred_errors();
  fail_group(own_job_rank(), reason);
}

// --- running ---

bool GroupQueue::progress() {
  std::unique_lock lock(mutex_);
  while (has_work() && !has_executor_) {
    if (!execute_nonblocking(lock)) return true;
  }
  return has_work();
}

void GroupQueue::close() {
  std::unique_lock lock(mutex_);
  if (const size_t count = queue_.size() + num_messages_; count > 0) {
    lock.unlock();
    abort(str("destroyed its group while ", count, count == 1 ? " operation was" : " operations were", " queued"));
    lock.lock();
  }
  while (has_work()) {
    ++num_waiters_;
    if (has_executor_) {
      for_waiters_.wait(lock);
    } else {
      execute_blocking(lock, Clock::time_point::max());
    }
    --num_waiters_;
  }
  lock.unlock();
  // Failures of other ranks are still reported at this point, so finish() does not wait for a failed rank.
  finish_gpu();
  latch_.close();
  if (latch_.is_failing()) backend_->do_cancel();
  lock.lock();
  stop_ = true;
  std::thread worker = std::move(worker_);
  const std::shared_ptr<NcclBackend> nccl =
      std::move(nccl_backend_);  // keeps the backend alive until the end of this function
  const std::shared_ptr<GpuMessages> messages = gpu_messages_;
  lock.unlock();
  for_worker_.notify_one();
  backend_->do_wake();
  if (worker.get_id() == std::this_thread::get_id()) {
    worker.detach();  // a continuation dropped the last handle; the worker holds this object until it ends
  } else if (worker.joinable()) {
    worker.join();
  }
  if (messages != nullptr) messages->close();
}

void GroupQueue::start_worker() {
  worker_ = start_rank_thread([self = shared_from_this()] {
    set_trace_thread(kGroupWorkerThread);
    self->work();
  });
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
    if (execute_nonblocking(lock)) continue;
    const Clock::time_point until = worker_until_;
    lock.unlock();
    sleepers_.fetch_add(1);
    backend_->do_sleep(
        [&] {
          std::unique_lock inner(mutex_);
          if (stop_ || !deferred_.empty() || num_waiters_ > 0 || has_executor_ || !has_work()) return true;
          return execute_nonblocking(inner);
        },
        until);
    sleepers_.fetch_sub(1);
    lock.lock();
  }
}

/// Runs the group on this thread until `operation` is done or `until` has passed.
void GroupQueue::run_until(std::unique_lock<std::mutex>& lock, const Operation& operation, Clock::time_point until) {
  ++num_waiters_;
  while (!operation.done) {
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

/// Executes operations, waiting for peers, until one of them has ended. Returns false if `until` passed first.
bool GroupQueue::execute_blocking(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  acquire_executor(lock);
  Advance result = Advance::kIdle;
  do {
    int idle = 0;
    const int longest = backend_->max_polls();
    while (result != Advance::kDone && idle < longest) {
      result = step();
      idle = result == Advance::kIdle ? idle + 1 : 0;
      if (idle > 0) pause_briefly();
    }
    if (result == Advance::kDone) break;
    sleepers_.fetch_add(1);
    backend_->do_sleep(
        [&] {
          result = step();
          return result != Advance::kIdle;
        },
        std::min(until, wake_at()));
    sleepers_.fetch_sub(1);
    if (result == Advance::kIdle && advance_or_expire()) result = Advance::kDone;
  } while (result != Advance::kDone && Clock::now() < until);
  release_executor(lock);
  return result == Advance::kDone;
}

/// Executes operations without waiting. Returns whether an operation has ended.
bool GroupQueue::execute_nonblocking(std::unique_lock<std::mutex>& lock) {
  acquire_executor(lock);
  const bool ended = advance_or_expire();
  worker_until_ = wake_at();
  release_executor(lock);
  return ended;
}

void GroupQueue::acquire_executor(std::unique_lock<std::mutex>& lock) {
  has_executor_ = true;
  collect();
  lock.unlock();
}

/// Makes new operations visible to the executor.
void GroupQueue::collect() {
  if (head_ == nullptr && !queue_.empty()) head_ = queue_.front();
  while (pending_.size() + 1 < queue_.size()) pending_.push_back(queue_[pending_.size() + 1]);
  running_messages_ = gpu_messages_.get();
  if (arrived_.empty()) return;
  std::move(arrived_.begin(), arrived_.end(), std::back_inserter(active_));
  arrived_.clear();
}

void GroupQueue::release_executor(std::unique_lock<std::mutex>& lock) {
  const bool head_ended = head_ != nullptr && head_->ended;
  if (head_ended) finish(*head_);
  bool messages_ended = false;
  for (const auto& message : active_) {
    if (!message->ended) continue;
    finish(*message);
    messages_ended = true;
  }

  std::vector<std::shared_ptr<Operation>> promised;
  lock.lock();
  has_executor_ = false;
  has_arrivals_.store(false, std::memory_order_relaxed);
  const auto leave = [&](auto& operation) {
    operation->done = true;
    if (operation->promise) promised.push_back(std::move(operation));
    operation = nullptr;
  };
  if (head_ended) {
    queue_.pop_front();
    leave(head_);
    if (!pending_.empty()) pending_.pop_front();
    if (num_prefetched_ > 0) --num_prefetched_;
  }
  if (messages_ended) {
    for (auto& message : active_) {
      if (!message->ended) continue;
      if (!message->is_internal) --num_messages_;
      leave(message);
    }
    const auto begun = std::span(active_).first(num_begun_);
    num_begun_ -= static_cast<size_t>(std::count(begun.begin(), begun.end(), nullptr));
    std::erase(active_, nullptr);
  }
  if (num_waiters_ > 0) {
    for_waiters_.notify_all();
  } else if (has_work()) {
    for_worker_.notify_one();
  }
  if (promised.empty()) return;
  if (defers_completions) {
    deferred_.insert(deferred_.end(), promised.begin(), promised.end());
    for_worker_.notify_one();
    wake_executor();
    return;
  }
  lock.unlock();
  for (const auto& operation : promised) complete(*operation);  // runs continuations
  lock.lock();
}

// --- only for the executor ---

/// Advances all operations once, without waiting. Returns kDone if one has ended.
Advance GroupQueue::step() {
  if (has_arrivals_.load()) {
    std::lock_guard lock(mutex_);
    has_arrivals_.store(false, std::memory_order_relaxed);
    collect();
  }
  Advance result = Advance::kIdle;
  if (head_ != nullptr) result = advance_head();
  if (!active_.empty()) result = std::max(result, advance_messages());
  return result;
}

/// Advances all operations until nothing moves. Returns whether one has ended, because it is complete or was late.
bool GroupQueue::advance_or_expire() {
  Advance result = Advance::kMoved;
  Clock::time_point now;
  while (result == Advance::kMoved) {
    now = Clock::now();  // before the step, because data that arrived in time is not late
    result = step();
  }
  return result == Advance::kDone || check_times(now);
}

Advance GroupQueue::advance_head() {
  CollectiveOperation& head = *head_;
  try {
    if (!head.started) {
      begin(head);
      backend_->do_start(head.collective);
    }
    Advance result = backend_->do_advance();
    if (result == Advance::kIdle && knows_ends()) {
      result = backend_->do_advance();  // what arrived before the ends were known counts
      if (result == Advance::kIdle) fail_if_needed(head.number(), [&](int rank) { return backend_->do_needs(rank); });
    }
    head.ended = result == Advance::kDone;
    if (head.ended) completed_.store(head.number(), std::memory_order_release);
    // The backend may be able to continue after it has received the signatures of later collectives.
    return !head.ended && prefetch_signatures() ? Advance::kMoved : result;
  } catch (const GroupError& e) {
    if (!active_.empty()) advance_messages();  // messages that the failed rank has received still complete
    fail(head, e);
  } catch (...) {
    fail_with_current_exception(head);
  }
  return Advance::kDone;
}

/// Sends the signatures of the collectives behind the head to the peers. Returns whether it sent any.
bool GroupQueue::prefetch_signatures() {
  bool any = false;
  for (; num_prefetched_ < pending_.size(); ++num_prefetched_) {
    const CollectiveOperation& before = num_prefetched_ > 0 ? *pending_[num_prefetched_ - 1] : *head_;
    const CollectiveOperation& next = *pending_[num_prefetched_];
    const bool input_is_ready = before.after.empty() && next.before.empty();
    if (!backend_->do_prefetch_signature(next.collective, input_is_ready)) break;
    any = true;
  }
  return any;
}

void GroupQueue::begin(Operation& operation) {
  latch_.read(known_);
  if (has_failed_) throw known_.failure->error(": the group has already failed");
  if (known_.failure && known_.failure->member == options_.rank) throw known_.failure->error();
  operation.started = true;
  watch_.begin(operation);
  recorder_.mark(operation, FlightRecorder::Time::kStarted, operation.began.time_since_epoch().count());
  if (operation.is_internal) return;
  if (trace_enabled()) operation.trace_begin_ns = trace_now_ns();
  for (const CopyStep& copy : operation.before) primitives::copy(copy.from, copy.to);
}

void GroupQueue::finish(Operation& operation) {
  if (!operation.error) {
    try {
      for (const CopyStep& copy : operation.after) primitives::copy(copy.from, copy.to);
      if (operation.at_end) operation.at_end();
    } catch (...) {
      operation.error = std::current_exception();  // only of this rank: the other ranks have their data
    }
  }
  recorder_.mark_end(operation);
  if (operation.trace_begin_ns == 0) return;
  const int thread = RankContext::current().trace_thread;
  record_trace({operation.shown_name(), operation.trace_category, own_job_rank(), thread, operation.trace_begin_ns,
                trace_now_ns(), operation.num_bytes()});
}

}}}  // namespace tandem::v0::distributed
