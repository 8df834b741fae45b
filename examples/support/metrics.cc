#include <tandem/examples/support/metrics.h>
#include <tandem/tensor/factories.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace examples {

namespace td = tandem;

namespace {

constexpr size_t kPoints = 240;  // of a line in a chart, at most

template <class T>
td::Tensor to_tensor(const std::vector<T>& values) {
  const td::Tensor tensor = td::empty({static_cast<int64_t>(values.size())}, {td::dtype_of<T>()});
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

template <class T>
std::vector<T> to_vector(const td::State& state, const char* name) {
  return state.get<td::Tensor>(name).to_vector<T>();
}

Series by_step(const std::string& label, const std::vector<double>& values) {
  Series series = {label, {}, values};
  for (size_t i = 0; i < values.size(); ++i) series.x.push_back(static_cast<double>(i + 1));
  return series;
}

}  // namespace

void Metrics::add_step(double loss, double seconds) {
  losses_.push_back(loss);
  seconds_.push_back(seconds);
}

void Metrics::add_validation(int64_t step, const Validation& validation) {
  validation_steps_.push_back(step);
  validation_losses_.push_back(validation.loss);
  validation_accuracies_.push_back(validation.accuracy.value_or(std::numeric_limits<double>::quiet_NaN()));
}

void Metrics::merge(td::distributed::ProcessGroup& group) {
  const int64_t before = std::exchange(merged_, static_cast<int64_t>(losses_.size()));
  if (merged_ == before) return;
  const td::Tensor fresh = to_tensor(std::vector<double>(losses_.begin() + before, losses_.end()));
  group.all_reduce(fresh, td::distributed::ReduceOp::kAvg);
  std::copy_n(fresh.data<double>(), merged_ - before, losses_.begin() + before);
}

std::optional<Validation> Metrics::validation(int64_t step) const {
  const auto found = std::find(validation_steps_.begin(), validation_steps_.end(), step);
  if (found == validation_steps_.end()) return std::nullopt;
  const auto i = static_cast<size_t>(found - validation_steps_.begin());
  Validation result = {validation_losses_[i]};
  if (!std::isnan(validation_accuracies_[i])) result.accuracy = validation_accuracies_[i];
  return result;
}

Plot Metrics::loss_plot(const std::string& title, const std::string& validation_label) const {
  Plot plot = {title, "step", "loss", {downsampled(by_step("training", losses_), kPoints)}};
  if (validation_steps_.empty()) return plot;
  Series line = {validation_label, {}, validation_losses_, true};
  line.x.assign(validation_steps_.begin(), validation_steps_.end());
  plot.series.push_back(std::move(line));
  return plot;
}

Plot Metrics::throughput_plot(const std::string& title, const std::string& items, int64_t items_per_step) const {
  // The rate of several steps is their number divided by their total time, so durations are averaged, not rates.
  Series timed = {items + " per second", {}, {}};
  for (size_t i = 0; i < seconds_.size(); ++i) {
    if (std::isnan(seconds_[i])) continue;
    timed.x.push_back(static_cast<double>(i + 1));
    timed.y.push_back(seconds_[i]);
  }
  timed = downsampled(timed, kPoints);
  for (double& y : timed.y) y = static_cast<double>(items_per_step) / y;
  return {title, "step", items + " per second, all ranks", {std::move(timed)}, true};
}

td::State Metrics::state_dict() const {
  td::State state;
  state.set("losses", to_tensor(losses_));
  state.set("seconds", to_tensor(seconds_));
  state.set("merged", merged_);
  state.set("validation_steps", to_tensor(validation_steps_));
  state.set("validation_losses", to_tensor(validation_losses_));
  state.set("validation_accuracies", to_tensor(validation_accuracies_));
  return state;
}

void Metrics::load_state_dict(const td::State& state) {
  losses_ = to_vector<double>(state, "losses");
  seconds_ = to_vector<double>(state, "seconds");
  merged_ = state.get<int64_t>("merged");
  validation_steps_ = to_vector<int64_t>(state, "validation_steps");
  validation_losses_ = to_vector<double>(state, "validation_losses");
  validation_accuracies_ = to_vector<double>(state, "validation_accuracies");
}

}  // namespace examples
