#include <tandem/distributed/ddp/measured_comm_hooks.h>

#include <cmath>
#include <utility>

#include <tandem/base/log.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Sums over CPU tensors: squared norms of `result`, `exact` and their difference, and the inner product.
struct Comparison {
  void add(const Tensor& result, const Tensor& exact) {
    visit_floating_dtype(exact.dtype(), [&]<class T>() {
      const T *p = result.data<T>(), *q = exact.data<T>();
      for (int64_t i = 0; i < exact.numel(); ++i) {
        const auto x = static_cast<double>(p[i]), y = static_cast<double>(q[i]);
        difference2 += (x - y) * (x - y);
        result2 += x * x;
        exact2 += y * y;
        product += x * y;
      }
    });
  }
  double relative_to(double norm2) const { return difference2 == 0 ? 0 : std::sqrt(difference2 / norm2); }
  double cosine() const {
    if (result2 == 0 || exact2 == 0) return result2 == exact2 ? 1 : 0;
    return product / (std::sqrt(exact2) * std::sqrt(result2));
  }
  double difference2 = 0, result2 = 0, exact2 = 0, product = 0;
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

MeasuredCommHooks::MeasuredCommHooks(std::shared_ptr<ProcessGroup> group, CommHooks hooks,
                                     std::vector<GradBucket> buckets, int64_t report_every)
    : group_(std::move(group)),
      hooks_(std::move(hooks)),
      buckets_(std::move(buckets)),
      report_every_(report_every),
      pipeline_(std::make_shared<CommHookPipeline>(group_, hooks_, buckets_)) {}

Work MeasuredCommHooks::launch(size_t bucket) {
  if (is_measured_step()) {
    if (bucket == 0) {
      snapshot_state_ = copy_of(state_dict());
      snapshot_values_.clear();
    }
    snapshot_values_.push_back(copy_of(buckets_[bucket].values));
  }
  return pipeline_->launch(bucket, hooks_.size());
}

std::vector<Tensor> MeasuredCommHooks::copy_values() const {
  std::vector<Tensor> all;
  for (const GradBucket& bucket : buckets_) {
    all.push_back(empty(bucket.values.shape(), {bucket.values.dtype()}));  // on the CPU, for Comparison
    primitives::copy(bucket.values, all.back());
  }
  return all;
}

std::vector<Tensor> MeasuredCommHooks::replay(size_t num_hooks) {
  load_state_dict(snapshot_state_);
  for (size_t i = 0; i < buckets_.size(); ++i) primitives::copy(snapshot_values_[i], buckets_[i].values);
  std::vector<Work> works;
  for (size_t i = 0; i < buckets_.size(); ++i) works.push_back(pipeline_->launch(i, num_hooks));
  for (const Work& work : works) work.wait();
  return copy_values();
}

HookReport MeasuredCommHooks::measure() {
  const State final_state = copy_of(state_dict());
  const std::vector<Tensor> averaged = copy_values();
  const std::vector<Tensor> exact = replay(0);
  HookReport report;
  report.step = step_ + 1;
  Comparison all;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Comparison c;
    c.add(averaged[i], exact[i]);
    report.buckets.push_back({buckets_[i].name, c.relative_to(c.exact2), c.cosine()});
    all.add(averaged[i], exact[i]);
  }
  report.relative_error = all.relative_to(all.exact2);
  report.cosine = all.cosine();
  std::vector<Tensor> without = exact;
  for (size_t k = 1; k <= hooks_.size(); ++k) {
    std::vector<Tensor> with = k < hooks_.size() ? replay(k) : averaged;
    Comparison c;
    for (size_t i = 0; i < buckets_.size(); ++i) c.add(with[i], without[i]);
    report.hooks.push_back({hooks_[k - 1]->describe(), c.relative_to(all.exact2)});
    without = std::move(with);
  }
  load_state_dict(final_state);
  for (size_t i = 0; i < buckets_.size(); ++i) primitives::copy(averaged[i], buckets_[i].values);
  snapshot_values_.clear();
  snapshot_state_ = {};
  return report;
}

void MeasuredCommHooks::end_step() {
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
  pipeline_->end_step();
  ++step_;
}

State MeasuredCommHooks::state_dict() const {
  State state;
  state.set("hooks", describe(hooks_));
  state.set("step", step_);
  for (size_t i = 0; i < hooks_.size(); ++i) {
    State hook = hooks_[i]->state_dict();
    if (!hook.empty()) state.set(str("hook ", i), std::move(hook));
  }
  return state;
}

void MeasuredCommHooks::load_state_dict(const State& state) {
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
    for (int64_t i = 0; i < sum.numel(); ++i) values[i] /= num_ranks;
    const Tensor result = empty(sum.shape(), {mean.get<Tensor>(path).dtype()});
    primitives::copy(sum, result);
    mean.set(path, result);
  }
  return mean;
}

}}}  // namespace tandem::v0::distributed
