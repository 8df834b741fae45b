#include <tandem/distributed/ddp/comm_hook_pipeline.h>

#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace distributed {

std::string describe(const CommHooks& hooks) {
  std::string text;
  for (const auto& hook : hooks) text += str(text.empty() ? "" : " > ", hook->describe());
  return text;
}

CommHookPipeline::CommHookPipeline(std::shared_ptr<ProcessGroup> group, CommHooks hooks,
                                   std::vector<GradBucket> buckets)
    : group_(std::move(group)), hooks_(std::move(hooks)), buckets_(std::move(buckets)), in_flight_(buckets_.size()) {
  for (size_t i = 1; i < hooks_.size(); ++i) {
    TANDEM_CHECK(ValueError, !hooks_[i]->needs_whole_parameters(), "GradientReducer: ", hooks_[i]->describe(),
                 " must be the first hook of the chain because it needs whole parameters\n  hooks  ", describe(hooks_));
  }
  hooks_.front()->prepare(buckets_);
  for (const GradBucket& bucket : buckets_) {
    if (group_->size() > 1 && !bucket.values.device().is_cpu()) gpu_ = bucket.values.device();
  }
}

CommHookPipeline::~CommHookPipeline() {
  for (const cuda::Stream& stream : comm_streams_) {
    try {
      cuda::Event end(stream.device());
      end.record(stream);
      end.synchronize();
    } catch (const Error&) {  // already thrown by wait()
    }
  }
}

const cuda::Stream& CommHookPipeline::comm_stream(int num_all_reduces) {
  const auto index = static_cast<size_t>(num_all_reduces);
  while (comm_streams_.size() <= index) comm_streams_.emplace_back(*gpu_);
  return comm_streams_[index];
}

Work CommHookPipeline::launch(size_t bucket, size_t num_hooks) {
  std::unique_lock lock(mutex_);
  InFlightBucket& flight = in_flight_[bucket];
  flight = {};
  flight.num_hooks = num_hooks;
  flight.promise.set_help([weak = weak_from_this(), bucket](Clock::time_point deadline) {
    const auto self = weak.lock();
    return self != nullptr && self->progress(bucket, deadline);
  });
  if (is_on_gpu(bucket)) {
    flight.ready.emplace(*gpu_).record(cuda::current_stream(*gpu_));
    const cuda::Event closed(*gpu_);
    flight.closed = closed;
    flight.promise.set_join([closed] { closed.make_wait(cuda::current_stream(closed.device())); });
  }
  Work work = flight.promise.future();
  if (failure_) {
    flight.promise.set_exception(failure_);
    return work;
  }
  waiting_.push_back(bucket);
  open_next(lock);
  return work;
}

bool CommHookPipeline::progress(size_t bucket, Clock::time_point deadline) {
  Work current;
  {
    std::lock_guard lock(mutex_);
    current = in_flight_[bucket].current;
  }
  if (!current.valid() || current.is_completed()) return false;
  try {
    if (deadline != Clock::time_point::max()) return current.wait(deadline - Clock::now());
    current.wait();
    return true;
  } catch (...) {
    return false;  // the future of the bucket throws the error
  }
}

void CommHookPipeline::open_next(std::unique_lock<std::mutex>& lock) {
  if (opening_) return;  // that thread checks waiting_ again
  opening_ = true;
  while (!is_open_ && !waiting_.empty()) {
    const size_t bucket = waiting_.front();
    waiting_.pop_front();
    is_open_ = true;
    lock.unlock();
    open(bucket);
    lock.lock();
  }
  opening_ = false;
}

void CommHookPipeline::open(size_t bucket) {
  try {
    std::optional<cuda::StreamGuard> guard;
    if (is_on_gpu(bucket)) {
      in_flight_[bucket].ready->make_wait(comm_stream(0));
      guard.emplace(comm_stream(0));
    }
    const GradBucket& values = buckets_[bucket];
    const std::shared_ptr<const GradBucket> borrowed(std::shared_ptr<void>(), &values);
    average(bucket, 0, borrowed, true, [weak = weak_from_this(), bucket] {
      if (const auto self = weak.lock()) self->close(bucket);
    });
  } catch (const CommError&) {
    fail(bucket, std::current_exception());
  } catch (...) {
    fail_by_hook(bucket);
  }
}

void CommHookPipeline::average(size_t bucket, size_t level, const std::shared_ptr<const GradBucket>& values,
                               bool is_last, std::function<void()> done) {
  if (level == in_flight_[bucket].num_hooks) return all_reduce(bucket, values->values, is_last, std::move(done));
  CommHook& hook = *hooks_[level];
  const auto remaining = std::make_shared<int>(hook.num_all_reduces(*values));
  const auto next = [weak = weak_from_this(), bucket, level, is_last, remaining](const Tensor& sent,
                                                                                 std::function<void()> then) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    TANDEM_CHECK(StateError, *remaining > 0, "GradientReducer: ", self->hooks_[level]->describe(),
                 " made more all-reduces than num_all_reduces() returned");
    const bool last = --*remaining == 0 && is_last;
    const GradBucket& whole = self->buckets_[bucket];
    auto inner = std::make_shared<const GradBucket>(GradBucket{sent, whole.index, whole.name, {}});
    self->average(bucket, level + 1, inner, last, std::move(then));
  };
  // Captures `values` to keep them alive until the hook calls `done`.
  hook.average(*values, next, [weak = weak_from_this(), level, remaining, values, done = std::move(done)] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    TANDEM_CHECK(StateError, *remaining == 0, "GradientReducer: ", self->hooks_[level]->describe(),
                 " made fewer all-reduces than num_all_reduces() returned");
    done();
  });
}

void CommHookPipeline::all_reduce(size_t bucket, const Tensor& values, bool is_last, std::function<void()> done) {
  InFlightBucket& flight = in_flight_[bucket];
  std::string name = str(buckets_[bucket].name, flight.num_hooks < hooks_.size() ? " (replay)" : "");
  if (flight.num_started++ > 0) name += str(", all-reduce ", flight.num_started);
  const Work work = group_->all_reduce_async(values, ReduceOp::kAvg, {.name = std::move(name)});
  {
    std::lock_guard lock(mutex_);
    flight.current = work;
    if (is_last) is_open_ = false;
  }
  if (is_on_gpu(bucket)) return continue_on_comm_stream(bucket, work, std::move(done));
  work.then([self = shared_from_this(), bucket, work, done = std::move(done)] {
    if (const std::exception_ptr error = work.exception()) return self->fail(bucket, error);
    try {
      done();
    } catch (const CommError&) {
      return self->fail(bucket, std::current_exception());
    } catch (...) {
      return self->fail_by_hook(bucket);
    }
    std::unique_lock lock(self->mutex_);
    self->open_next(lock);
  });
}

/// Does not check that all ranks started the same collective; close() does.
void CommHookPipeline::continue_on_comm_stream(size_t bucket, const Work& work, std::function<void()> done) {
  const cuda::StreamGuard guard(comm_stream(in_flight_[bucket].num_started));
  work.join();
  in_flight_[bucket].callbacks.push_back(done);
  done();
}

void CommHookPipeline::close(size_t bucket) {
  // A copy, because a waiting thread may launch the bucket again immediately.
  const Promise<void> promise = in_flight_[bucket].promise;
  if (!is_on_gpu(bucket)) return promise.set_value();
  in_flight_[bucket].closed->record(cuda::current_stream(*gpu_));
  const Work last = in_flight_[bucket].current;
  last.then([self = shared_from_this(), bucket, last, promise] {
    if (const std::exception_ptr error = last.exception()) return self->fail(bucket, error);
    promise.set_value();
  });
}

void CommHookPipeline::fail(size_t bucket, std::exception_ptr error) {
  std::vector<Promise<void>> promises;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    promises.push_back(in_flight_[bucket].promise);
    for (const size_t other : waiting_) promises.push_back(in_flight_[other].promise);
    waiting_.clear();
  }
  for (const Promise<void>& promise : promises) promise.set_exception(error);
}

void CommHookPipeline::fail_by_hook(size_t bucket) {
  const std::exception_ptr error = std::current_exception();
  fail(bucket, error);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    group_->abort(str("a communication hook failed: ", e.what()));
  } catch (...) {
    group_->abort("a communication hook failed");
  }
}

void CommHookPipeline::end_step() {
  for (InFlightBucket& flight : in_flight_) flight.callbacks.clear();
}

}}}  // namespace tandem::v0::distributed
