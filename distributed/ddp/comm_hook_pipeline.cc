#include <tandem/distributed/ddp/comm_hook_pipeline.h>

#include <cmath>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

double relative(double difference2, double exact2) {
  if (difference2 == 0) return 0;
  return std::sqrt(difference2 / exact2);
}

double cosine(double product, double a2, double b2) {
  if (a2 == 0 && b2 == 0) return 1;
  if (a2 == 0 || b2 == 0) return 0;
  return product / (std::sqrt(a2) * std::sqrt(b2));
}

/// Sums over CPU tensors a and b: squared norms of a, b and a - b, and the inner product.
struct Comparison {
  Comparison& add(const Tensor& a, const Tensor& b) {
    visit_floating_dtype(a.dtype(), [&]<class T>() {
      const T* p = a.data<T>();
      const T* q = b.data<T>();
      for (int64_t i = 0; i < a.num_elements(); ++i) {
        const auto x = static_cast<double>(p[i]);
        const auto y = static_cast<double>(q[i]);
        difference2 += (x - y) * (x - y);
        a2 += x * x;
        b2 += y * y;
        product += x * y;
      }
    });
    return *this;
  }
  double difference2 = 0, a2 = 0, b2 = 0, product = 0;
};

Tensor copy_of(const Tensor& tensor) {
  const Tensor copy = empty_like(tensor);
  primitives::copy(tensor, copy);
  return copy;
}

/// Deep copy.
State copy_of(const State& state) {
  State copy;
  for (const auto& [name, value] : state.entries()) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      copy.set(name, copy_of(*tensor));
    } else if (const auto* nested = std::get_if<std::shared_ptr<State>>(&value)) {
      copy.set(name, copy_of(**nested));
    } else {
      copy.set(name, value);
    }
  }
  return copy;
}

}  // namespace

std::string describe(const CommHooks& hooks) {
  std::string text;
  for (const auto& hook : hooks) text += str(text.empty() ? "" : " > ", hook->describe());
  return text;
}

CommHookPipeline::CommHookPipeline(std::shared_ptr<ProcessGroup> group, CommHooks hooks,
                                   std::vector<GradBucket> buckets, int64_t hook_report_every)
    : group_(std::move(group)),
      hooks_(std::move(hooks)),
      buckets_(std::move(buckets)),
      hook_report_every_(hook_report_every),
      num_active_hooks_(hooks_.size()),
      in_flight_(buckets_.size()) {
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

Work CommHookPipeline::launch(size_t bucket) {
  if (is_measured_step() && !is_replaying()) snapshot(bucket);
  std::unique_lock lock(mutex_);
  InFlightBucket& flight = in_flight_[bucket];
  flight = {};
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
  if (level == num_active_hooks_) return all_reduce(bucket, values->values, is_last, std::move(done));
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
  std::string name = str(buckets_[bucket].name, is_replaying() ? " (replay)" : "");
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

void CommHookPipeline::snapshot(size_t bucket) {
  if (bucket == 0) {
    snapshot_state_ = copy_of(state_dict());
    snapshot_values_.clear();
  }
  snapshot_values_.push_back(copy_of(buckets_[bucket].values));
}

std::vector<Tensor> CommHookPipeline::copy_values() const {
  std::vector<Tensor> all;
  for (const GradBucket& bucket : buckets_) {
    all.push_back(empty(bucket.values.shape(), {bucket.values.dtype()}));  // on the CPU, for Comparison
    primitives::copy(bucket.values, all.back());
  }
  return all;
}

std::vector<Tensor> CommHookPipeline::replay(size_t num_hooks) {
  load_state_dict(snapshot_state_);
  for (size_t i = 0; i < buckets_.size(); ++i) primitives::copy(snapshot_values_[i], buckets_[i].values);
  num_active_hooks_ = num_hooks;
  std::vector<Work> works;
  for (size_t i = 0; i < buckets_.size(); ++i) works.push_back(launch(i));
  for (const Work& work : works) work.wait();
  return copy_values();
}

HookReport CommHookPipeline::measure() {
  const State final_state = copy_of(state_dict());
  const std::vector<Tensor> averaged = copy_values();
  const std::vector<Tensor> exact = replay(0);
  HookReport report;
  report.step = step_ + 1;
  Comparison all;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Comparison c = Comparison().add(averaged[i], exact[i]);
    report.buckets.push_back({buckets_[i].name, relative(c.difference2, c.b2), cosine(c.product, c.b2, c.a2)});
    all.add(averaged[i], exact[i]);
  }
  report.relative_error = relative(all.difference2, all.b2);
  report.cosine = cosine(all.product, all.b2, all.a2);
  std::vector<Tensor> without = exact;
  for (size_t k = 1; k <= hooks_.size(); ++k) {
    std::vector<Tensor> with = k < hooks_.size() ? replay(k) : averaged;
    Comparison c;
    for (size_t i = 0; i < buckets_.size(); ++i) c.add(with[i], without[i]);
    report.hooks.push_back({hooks_[k - 1]->describe(), relative(c.difference2, all.b2)});
    without = std::move(with);
  }
  load_state_dict(final_state);
  for (size_t i = 0; i < buckets_.size(); ++i) primitives::copy(averaged[i], buckets_[i].values);
  num_active_hooks_ = hooks_.size();
  snapshot_values_.clear();
  snapshot_state_ = {};
  return report;
}

void CommHookPipeline::end_step() {
  if (is_measured_step()) {
    try {
      report_ = measure();
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& e) {
      // Other ranks are waiting for this one.
      group_->abort(str("the error measurement of the communication hooks failed: ", e.what()));
      throw;
    }
    // Logged unless warnings are disabled, because the user requested the report.
    if (group_->rank() == 0 && log_enabled(LogLevel::kWarning)) {
      log_line(LogLevel::kInfo, str("communication hooks ", describe(hooks_), ", ", to_string(report_)));
    }
  }
  for (InFlightBucket& flight : in_flight_) flight.callbacks.clear();
  ++step_;
}

State mean_over_ranks(int num_ranks, const std::function<State(int rank)>& state_of) {
  State mean = copy_of(state_of(0));
  std::vector<std::pair<std::string, Tensor>> sums = mean.tensors();
  std::erase_if(sums, [](const auto& entry) { return !is_floating_point(entry.second.dtype()); });
  for (auto& [path, sum] : sums) sum = zeros(sum.shape(), {kFloat64});
  for (int rank = 0; rank < num_ranks; ++rank) {
    const State state = state_of(rank);
    for (const auto& [path, sum] : sums) {
      const Tensor& tensor = state.get<Tensor>(path);
      TANDEM_CHECK(StateError, tensor.shape() == sum.shape(), "GradientReducer: the saved '", path, "' of rank ", rank,
                   " has shape ", tensor.shape(), ", that of rank 0 ", sum.shape());
      const Tensor values = empty(sum.shape(), {kFloat64});
      primitives::copy(tensor, values);
      primitives::add_into(values, sum);
    }
  }
  for (const auto& [path, sum] : sums) {
    double* const values = sum.data<double>();
    for (int64_t i = 0; i < sum.num_elements(); ++i) values[i] /= num_ranks;
    const Tensor result = empty(sum.shape(), {mean.get<Tensor>(path).dtype()});
    primitives::copy(sum, result);
    mean.set(path, result);
  }
  return mean;
}

State CommHookPipeline::state_dict() const {
  State state;
  state.set("hooks", describe(hooks_));
  state.set("step", step_);
  for (size_t i = 0; i < hooks_.size(); ++i) {
    State hook = hooks_[i]->state_dict();
    if (!hook.empty()) state.set(str("hook ", i), std::move(hook));
  }
  return state;
}

void CommHookPipeline::load_state_dict(const State& state) {
  const auto& saved = state.get<std::string>("hooks");
  TANDEM_CHECK(StateError, saved == describe(hooks_),
               "GradientReducer: the state belongs to other communication hooks\n  saved    ", saved, "\n  current  ",
               describe(hooks_));
  const auto step = state.get<int64_t>("step");
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (hooks_[i]->state_dict().empty()) continue;
    hooks_[i]->load_state_dict(state.get<State>(str("hook ", i)));
  }
  step_ = step;
}

}}}  // namespace tandem::v0::distributed
