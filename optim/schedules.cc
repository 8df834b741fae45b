#include <tandem/optim/schedules.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tandem/base/math.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

const std::vector<std::string> kStrategies = {"cos", "linear"};

/// From `start` to `end` along half a cosine, for `share` from 0 to 1.
double cosine(double start, double end, double share) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double interpolate(const std::string& strategy, double start, double end, double share) {
  return strategy == "cos" ? cosine(start, end, share) : start + (end - start) * share;
}

/// The number of milestones that are at most `steps`.
size_t num_passed(const std::vector<int64_t>& milestones, int64_t steps) {
  return static_cast<size_t>(std::upper_bound(milestones.begin(), milestones.end(), steps) - milestones.begin());
}

std::string problem_of_order(const std::vector<int64_t>& milestones) {
  for (size_t i = 1; i < milestones.size(); ++i) {
    if (milestones[i] < milestones[i - 1])
      return str("milestones.", i, " is ", milestones[i], ", expected at least milestones.", i - 1, ", which is ",
                 milestones[i - 1]);
  }
  return "";
}

std::string problem_of_functions(const PerGroup<StepFunction>& functions, const Optimizer& optimizer) {
  const auto size = static_cast<int64_t>(functions.values.size());
  if (size != 1 && size != optimizer.num_groups())
    return str("lr_lambda has ", size, " functions, expected 1 or one for each of the ", optimizer.num_groups(),
               " groups");
  for (int64_t i = 0; i < size; ++i) {
    if (!functions.values[static_cast<size_t>(i)]) return str("lr_lambda ", i, " is empty");
  }
  return "";
}

// Checks of options.

std::string from_zero_to_one(const char* name, double value) {
  return value >= 0 && value <= 1 ? "" : str(name, " is ", value, ", expected 0 <= ", name, " <= 1");
}

std::string above_zero_to_one(const char* name, double value) {
  return value > 0 && value <= 1 ? "" : str(name, " is ", value, ", expected 0 < ", name, " <= 1");
}

}  // namespace

std::vector<Option> LambdaLROptions::options() { return {}; }

std::string LambdaLROptions::problem(const Optimizer& optimizer) const {
  return problem_of_functions(lr_lambda, optimizer);
}

double LambdaLROptions::rate_at(double initial, int64_t steps, int64_t group) const {
  return initial * lr_lambda[group](steps);
}

std::vector<Option> MultiplicativeLROptions::options() { return {}; }

std::string MultiplicativeLROptions::problem(const Optimizer& optimizer) const {
  return problem_of_functions(lr_lambda, optimizer);
}

double MultiplicativeLROptions::rate_at(double initial, int64_t steps, int64_t group) const {
  const auto g = static_cast<size_t>(group);
  if (products.size() <= g) products.resize(g + 1);
  Product& product = products[g];
  if (product.steps > steps) product = {};
  while (product.steps < steps) {
    product.value *= lr_lambda[group](product.steps + 1);
    ++product.steps;
  }
  return initial * product.value;
}

double MultiplicativeLROptions::rate_after(double last, int64_t steps, int64_t group) const {
  const double product = rate_at(1, steps, group);
  std::optional<double>& at_milestone = products[static_cast<size_t>(group)].at_milestone;
  if (!at_milestone) at_milestone = lr_lambda[group](0);
  return last * *at_milestone * product;
}

std::vector<Option> StepLROptions::options() {
  return {{"step_size", &step_size, at_least_one}, {"gamma", &gamma, not_negative}};
}

double StepLROptions::factor_at(int64_t steps) const { return std::pow(gamma, static_cast<double>(steps / step_size)); }

std::vector<Option> MultiStepLROptions::options() {
  return {{"gamma", &gamma, not_negative}, {"milestones", &milestones, at_least_one}};
}

std::string MultiStepLROptions::problem(const Optimizer&) const { return problem_of_order(milestones); }

double MultiStepLROptions::factor_at(int64_t steps) const {
  return std::pow(gamma, static_cast<double>(num_passed(milestones, steps)));
}

std::vector<Option> ConstantLROptions::options() {
  return {{"factor", &factor, from_zero_to_one}, {"total_iters", &total_iters, not_negative}};
}

std::vector<Option> LinearLROptions::options() {
  return {{"start_factor", &start_factor, above_zero_to_one},
          {"end_factor", &end_factor, from_zero_to_one},
          {"total_iters", &total_iters, at_least_one}};
}

double LinearLROptions::factor_at(int64_t steps) const {
  const double share = static_cast<double>(std::min(steps, total_iters)) / static_cast<double>(total_iters);
  return start_factor + (end_factor - start_factor) * share;
}

std::vector<Option> ExponentialLROptions::options() { return {{"gamma", &gamma, not_negative}}; }

double ExponentialLROptions::factor_at(int64_t steps) const { return std::pow(gamma, static_cast<double>(steps)); }

std::vector<Option> PolynomialLROptions::options() {
  return {{"total_iters", &total_iters, at_least_one}, {"power", &power, positive}};
}

double PolynomialLROptions::factor_at(int64_t steps) const {
  return std::pow(1 - static_cast<double>(std::min(steps, total_iters)) / static_cast<double>(total_iters), power);
}

std::vector<Option> CosineAnnealingLROptions::options() {
  return {{"T_max", &T_max, at_least_one}, {"eta_min", &eta_min, not_negative}};
}

double CosineAnnealingLROptions::rate_at(double initial, int64_t steps, int64_t) const {
  return cosine(initial, eta_min, static_cast<double>(steps) / static_cast<double>(T_max));
}

std::vector<Option> CosineAnnealingWarmRestartsOptions::options() {
  return {{"T_0", &T_0, at_least_one}, {"T_mult", &T_mult, at_least_one}, {"eta_min", &eta_min, not_negative}};
}

double CosineAnnealingWarmRestartsOptions::rate_at(double initial, int64_t steps, int64_t) const {
  int64_t length = T_0, at = T_mult == 1 ? steps % T_0 : steps;
  for (; at >= length; length = saturating_mul(length, T_mult)) at -= length;
  return cosine(initial, eta_min, static_cast<double>(at) / static_cast<double>(length));
}

std::vector<Option> CosineWarmupLROptions::options() {
  return {
      {"warmup_steps", &warmup_steps}, {"total_steps", &total_steps}, {"min_factor", &min_factor, from_zero_to_one}};
}

std::string CosineWarmupLROptions::problem(const Optimizer&) const {
  if (warmup_steps >= 0 && warmup_steps < total_steps) return "";
  return str("warmup_steps is ", warmup_steps, " and total_steps ", total_steps,
             ", expected 0 <= warmup_steps < total_steps");
}

double CosineWarmupLROptions::factor_at(int64_t steps) const {
  const auto at = static_cast<double>(steps), warmup = static_cast<double>(warmup_steps);
  if (steps < warmup_steps) return (at + 1) / (warmup + 1);
  if (steps >= total_steps) return min_factor;
  return cosine(1, min_factor, (at - warmup) / (static_cast<double>(total_steps) - warmup));
}

std::vector<Option> CyclicLROptions::options() {
  return {{"base_lr", &base_lr, not_negative},
          {"max_lr", &max_lr, not_negative},
          {"step_size_up", &step_size_up, at_least_one},
          {"step_size_down", &step_size_down, not_negative},
          {"mode", &mode, nullptr, {"triangular", "triangular2", "exp_range"}},
          {"gamma", &gamma, not_negative},
          {"scale_mode", &scale_mode, nullptr, {"cycle", "iterations"}},
          {"cycle_momentum", &cycle_momentum},
          {"base_momentum", &base_momentum, in_zero_one},
          {"max_momentum", &max_momentum, in_zero_one}};
}

double CyclicLROptions::scale(int64_t steps) const {
  const auto t = static_cast<double>(steps), up = static_cast<double>(step_size_up);
  const double length = up + (step_size_down == 0 ? up : static_cast<double>(step_size_down));
  const double cycle = std::floor(1 + t / length), x = 1 + t / length - cycle, top = up / length;
  const double height = x <= top ? x / top : (x - 1) / (top - 1);
  if (scale_fn) return height * scale_fn(scale_mode == "cycle" ? cycle : t);
  if (mode == "triangular2") return height * std::pow(2.0, 1 - cycle);
  return mode == "exp_range" ? height * std::pow(gamma, t) : height;
}

double CyclicLROptions::rate_at(double, int64_t steps, int64_t group) const {
  return base_lr[group] + (max_lr[group] - base_lr[group]) * scale(steps);
}

std::optional<double> CyclicLROptions::momentum_at(int64_t steps, int64_t group) const {
  if (!cycle_momentum) return std::nullopt;
  return max_momentum[group] - (max_momentum[group] - base_momentum[group]) * scale(steps);
}

std::vector<Option> OneCycleLROptions::options() {
  return {{"max_lr", &max_lr, not_negative},
          {"total_steps", &total_steps, not_negative},
          {"epochs", &epochs, not_negative},
          {"steps_per_epoch", &steps_per_epoch, not_negative},
          {"pct_start", &pct_start, from_zero_to_one},
          {"anneal_strategy", &anneal_strategy, nullptr, kStrategies},
          {"cycle_momentum", &cycle_momentum},
          {"base_momentum", &base_momentum, in_zero_one},
          {"max_momentum", &max_momentum, in_zero_one},
          {"div_factor", &div_factor, positive},
          {"final_div_factor", &final_div_factor, positive},
          {"three_phase", &three_phase}};
}

std::string OneCycleLROptions::problem(const Optimizer&) const {
  if (length() > 0) return "";
  return str("total_steps is ", total_steps, ", epochs ", epochs, " and steps_per_epoch ", steps_per_epoch,
             ", expected total_steps > 0, or both others");
}

int64_t OneCycleLROptions::length() const {
  return total_steps > 0 ? total_steps : saturating_mul(epochs, steps_per_epoch);
}

double OneCycleLROptions::anneal(int64_t steps, double first, double top, double last) const {
  const auto t = static_cast<double>(steps), total = static_cast<double>(length());
  struct Phase {
    double end, from, to;
  };
  const double rise = pct_start * total;
  const std::vector<Phase> phases =
      three_phase ? std::vector<Phase>{{rise - 1, first, top}, {2 * rise - 2, top, first}, {total - 1, first, last}}
                  : std::vector<Phase>{{rise - 1, first, top}, {total - 1, top, last}};
  double start = 0;
  size_t i = 0;
  for (; i + 1 < phases.size() && t > phases[i].end; ++i) start = phases[i].end;
  const auto [end, from, to] = phases[i];
  double share = end == start ? 1 : (t - start) / (end - start);
  // Step total_steps is one after the last phase. A line would end at a negative rate; the cosine is PyTorch's.
  if (anneal_strategy == "linear") share = std::min(share, 1.0);
  return interpolate(anneal_strategy, from, to, share);
}

double OneCycleLROptions::rate_at(double, int64_t steps, int64_t group) const {
  TANDEM_CHECK(ValueError, steps <= length(), kName, ": step ", steps, ", expected at most total_steps, which is ",
               length(), "; train fewer steps or set total_steps");
  const double top = max_lr[group], first = top / div_factor;
  return anneal(steps, first, top, first / final_div_factor);
}

std::optional<double> OneCycleLROptions::momentum_at(int64_t steps, int64_t group) const {
  if (!cycle_momentum) return std::nullopt;
  return anneal(steps, max_momentum[group], base_momentum[group], max_momentum[group]);
}

std::vector<Option> SWALROptions::options() {
  return {{"swa_lr", &swa_lr, not_negative},
          {"anneal_epochs", &anneal_epochs, not_negative},
          {"anneal_strategy", &anneal_strategy, nullptr, kStrategies}};
}

double SWALROptions::rate_at(double initial, int64_t steps, int64_t group) const {
  const double share = steps >= anneal_epochs ? 1 : static_cast<double>(steps) / static_cast<double>(anneal_epochs);
  return interpolate(anneal_strategy, initial, swa_lr[group], share);
}

std::vector<Option> SequentialLROptions::options() {
  return {{"schedulers", &schedulers}, {"milestones", &milestones, at_least_one}};
}

std::string SequentialLROptions::problem(const Optimizer&) const {
  if (schedulers.size() != milestones.size() + 1)
    return str(schedulers.size(), " schedulers and ", milestones.size(),
               " milestones, expected one more schedule than milestones");
  return problem_of_order(milestones);
}

double SequentialLROptions::rate_at(double initial, int64_t steps, int64_t group) const {
  const size_t i = num_passed(milestones, steps);
  if (i == 0) return schedulers[0]->rate(initial, steps, group);
  const int64_t begin = milestones[i - 1];
  const AnySchedule& part = schedulers[i];
  if (!part->starts_at_first_step()) return part->rate(initial, steps - begin, group);
  return part->rate_after(rate_at(initial, begin - 1, group), steps - begin, group);
}

std::optional<double> SequentialLROptions::momentum_at(int64_t steps, int64_t group) const {
  const size_t i = num_passed(milestones, steps);
  return schedulers[i]->momentum(i == 0 ? steps : steps - milestones[i - 1], group);
}

std::vector<Option> ChainedSchedulerOptions::options() { return {{"schedulers", &schedulers}}; }

std::string ChainedSchedulerOptions::problem(const Optimizer&) const {
  return schedulers.empty() ? "no schedulers, expected at least one" : "";
}

double ChainedSchedulerOptions::rate_at(double initial, int64_t steps, int64_t group) const {
  for (const AnySchedule& schedule : schedulers) initial = schedule->rate(initial, steps, group);
  return initial;
}

std::optional<double> ChainedSchedulerOptions::momentum_at(int64_t steps, int64_t group) const {
  std::optional<double> momentum;
  for (const AnySchedule& schedule : schedulers) {
    if (const auto own = schedule->momentum(steps, group)) momentum = own;
  }
  return momentum;
}

}}}  // namespace tandem::v0::optim
