#include <tandem/train/history.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/tensor/factories.h>
#include <tandem/train/plot_points.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

constexpr size_t kPoints = 240;  // of a line in a chart, at most

template <class T>
Tensor to_tensor(const std::vector<T>& values) {
  const Tensor tensor = empty({static_cast<int64_t>(values.size())}, {dtype_of<T>()});
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

template <class T>
std::vector<T> to_vector(const State& state, const char* name) {
  return state.get<Tensor>(name).to_vector<T>();
}

Series by_step(const std::string& label, const std::vector<double>& values) {
  Series series = {label, {}, values};
  for (size_t i = 0; i < values.size(); ++i) series.x.push_back(static_cast<double>(i + 1));
  return series;
}

}  // namespace

History::History(std::vector<std::string> labels) : labels_(std::move(labels)) {}

void History::add_step(const std::vector<double>& losses, double seconds) {
  losses_.insert(losses_.end(), losses.begin(), losses.end());
  seconds_.push_back(seconds);
}

std::vector<double> History::losses(size_t label) const {
  std::vector<double> result;
  for (size_t i = label; i < losses_.size(); i += labels_.size()) result.push_back(losses_[i]);
  return result;
}

void History::add_evaluation(int64_t step, Evaluation evaluation) {
  evaluations_.emplace_back(step, std::move(evaluation));
}

void History::merge(distributed::ProcessGroup& group) {
  const int64_t before = std::exchange(merged_, static_cast<int64_t>(losses_.size()));
  if (merged_ == before) return;
  const Tensor fresh = to_tensor(std::vector<double>(losses_.begin() + before, losses_.end()));
  group.all_reduce(fresh, distributed::ReduceOp::kAvg);
  std::copy_n(fresh.data<double>(), merged_ - before, losses_.begin() + before);
}

Evaluation History::evaluation(int64_t step) const {
  return !evaluations_.empty() && evaluations_.back().first == step ? evaluations_.back().second : Evaluation();
}

Plot History::loss_plot(const std::string& title, const std::string& evaluation_set) const {
  Plot plot = {title, "step", "loss", {}};
  for (size_t i = 0; i < labels_.size(); ++i) {
    plot.series.push_back(downsampled(by_step(labels_[i], losses(i)), kPoints));
  }
  Series line = {evaluation_set, {}, {}, true};
  for (const auto& [step, evaluation] : evaluations_) {
    for (const auto& [name, value] : evaluation) {
      if (name != "loss") continue;
      line.x.push_back(static_cast<double>(step));
      line.y.push_back(value);
    }
  }
  if (!line.x.empty()) plot.series.push_back(std::move(line));
  return plot;
}

Plot History::throughput_plot(const std::string& title, const std::string& items, int64_t items_per_step) const {
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

State History::state_dict() const {
  State state;
  state.set("losses", to_tensor(losses_));
  state.set("seconds", to_tensor(seconds_));
  state.set("merged", merged_);
  State evaluations;  // step -> name -> value
  for (const auto& [step, evaluation] : evaluations_) {
    State values;
    for (const auto& [name, value] : evaluation) values.set(name, value);
    evaluations.set(std::to_string(step), std::move(values));
  }
  state.set("evaluations", std::move(evaluations));
  return state;
}

void History::load_state_dict(const State& state, double scale) {
  std::vector<double> losses = to_vector<double>(state, "losses");
  std::vector<double> seconds = to_vector<double>(state, "seconds");
  TANDEM_CHECK(StateError, losses.size() == seconds.size() * labels_.size(), "History: the state has ", losses.size(),
               " losses of ", seconds.size(), " steps, expected ", labels_.size(), " of each step");
  losses_ = std::move(losses);
  seconds_ = std::move(seconds);
  for (double& value : seconds_) value *= scale;
  merged_ = state.get<int64_t>("merged");
  evaluations_.clear();
  const State& evaluations = state.get<State>("evaluations");
  for (const auto& entry : evaluations.entries()) {
    const State& values = evaluations.get<State>(entry.first);
    Evaluation evaluation;
    for (const auto& value : values.entries()) evaluation.emplace_back(value.first, values.get<double>(value.first));
    const std::optional<int64_t> step = parse_integer(entry.first);
    TANDEM_CHECK(StateError, step, "History: the state has evaluations of step '", entry.first, "'");
    evaluations_.emplace_back(*step, std::move(evaluation));
  }
}

}}}  // namespace tandem::v0::train
