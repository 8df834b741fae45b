#include <tandem/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include <tandem/optim/rule.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

std::string step_problem(int64_t step_size, double gamma) {
  return step_size < 1 ? str("step_size is ", step_size, ", expected at least 1") : not_negative("gamma", gamma);
}

std::string multi_step_problem(const std::vector<int64_t>& milestones, double gamma) {
  for (size_t i = 0; i < milestones.size(); ++i) {
    if (milestones[i] < 1) return str("milestone ", i, " is ", milestones[i], ", expected at least 1");
    if (i > 0 && milestones[i] <= milestones[i - 1])
      return str("milestone ", i, " is ", milestones[i], ", expected more than milestone ", i - 1, ", which is ",
                 milestones[i - 1]);
  }
  return not_negative("gamma", gamma);
}

std::string cosine_problem(const CosineWarmupOptions& options) {
  if (options.warmup_steps < 0 || options.warmup_steps >= options.total_steps)
    return str("warmup_steps is ", options.warmup_steps, " and total_steps ", options.total_steps,
               ", expected 0 <= warmup_steps < total_steps");
  if (!(options.min_factor >= 0 && options.min_factor <= 1))
    return str("min_factor is ", options.min_factor, ", expected 0 <= min_factor <= 1");
  return "";
}

void check(const char* name, const std::string& problem) {
  TANDEM_CHECK(ValueError, problem.empty(), name, ": ", problem);
}

}  // namespace

Schedule::Schedule(const char* name, Optimizer& optimizer) : name_(name), optimizer_(optimizer) {
  for (int64_t g = 0; g < optimizer.num_groups(); ++g) initial_.push_back(optimizer.lr(g));
}

Schedule::~Schedule() = default;

void Schedule::step() {
  ++steps_;
  apply();
}

std::vector<double> Schedule::last_lr() const {
  std::vector<double> result;
  for (const double initial : initial_) result.push_back(initial * factor(steps_));
  return result;
}

void Schedule::apply() const {
  const std::vector<double> rates = last_lr();
  for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_lr(static_cast<int64_t>(g), rates[g]);
}

State Schedule::state_dict() const {
  State state;
  state.set("schedule", std::string(name_));
  save_options(state);
  state.set("steps", steps_);
  for (size_t g = 0; g < initial_.size(); ++g) state.set(str("initial_lr.", g), initial_[g]);
  return state;
}

void Schedule::load_state_dict(const State& state) {
  StateReader reader(state);
  if (const auto* saved = reader.read<std::string>("schedule"); saved != nullptr && *saved != name_)
    reader.refuse("schedule", str(name_, " expected, ", *saved, " in the state"));
  const auto* steps = reader.read<int64_t>("steps");
  if (steps != nullptr && *steps < 0) reader.refuse("steps", str("is ", *steps, ", expected at least 0"));
  std::vector<double> initial(initial_.size());
  for (size_t g = 0; g < initial.size(); ++g) {
    const std::string path = str("initial_lr.", g);
    if (const auto* saved = reader.read<double>(path)) initial[g] = *saved;
    if (const std::string problem = not_negative("initial_lr", initial[g]); !problem.empty())
      reader.refuse(path, problem);
  }
  const std::function<void()> load_options = prepare_load(reader);
  reader.finish(str(name_, ": the state does not fit"));
  load_options();
  steps_ = *steps;
  initial_ = std::move(initial);
}

// --- StepLR --------------------------------------------------------------------------------------------------------

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : Schedule("StepLR", optimizer), step_size_(step_size), gamma_(gamma) {
  check("StepLR", step_problem(step_size, gamma));
  apply();
}

double StepLR::factor(int64_t steps) const { return std::pow(gamma_, static_cast<double>(steps / step_size_)); }

void StepLR::save_options(State& state) const {
  state.set("step_size", step_size_);
  state.set("gamma", gamma_);
}

std::function<void()> StepLR::prepare_load(StateReader& reader) {
  int64_t step_size = step_size_;
  double gamma = gamma_;
  if (const auto* saved = reader.read<int64_t>("step_size")) step_size = *saved;
  if (const auto* saved = reader.read<double>("gamma")) gamma = *saved;
  if (const std::string problem = step_problem(step_size, gamma); !problem.empty()) reader.refuse("options", problem);
  return [this, step_size, gamma] {
    step_size_ = step_size;
    gamma_ = gamma;
  };
}

// --- MultiStepLR ---------------------------------------------------------------------------------------------------

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : Schedule("MultiStepLR", optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  check("MultiStepLR", multi_step_problem(milestones_, gamma));
  apply();
}

double MultiStepLR::factor(int64_t steps) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), steps) - milestones_.begin();
  return std::pow(gamma_, static_cast<double>(passed));
}

void MultiStepLR::save_options(State& state) const {
  state.set("gamma", gamma_);
  state.set("num_milestones", static_cast<int64_t>(milestones_.size()));
  for (size_t i = 0; i < milestones_.size(); ++i) state.set(str("milestones.", i), milestones_[i]);
}

std::function<void()> MultiStepLR::prepare_load(StateReader& reader) {
  double gamma = gamma_;
  if (const auto* saved = reader.read<double>("gamma")) gamma = *saved;
  std::vector<int64_t> milestones;
  if (const auto* count = reader.read<int64_t>("num_milestones")) {
    while (static_cast<int64_t>(milestones.size()) < *count) {
      const auto* saved = reader.read<int64_t>(str("milestones.", milestones.size()));
      if (saved == nullptr) break;
      milestones.push_back(*saved);
    }
  }
  if (const std::string problem = multi_step_problem(milestones, gamma); !problem.empty())
    reader.refuse("options", problem);
  return [this, gamma, milestones = std::move(milestones)] {
    gamma_ = gamma;
    milestones_ = milestones;
  };
}

// --- CosineWarmupLR ------------------------------------------------------------------------------------------------

CosineWarmupLR::CosineWarmupLR(Optimizer& optimizer, CosineWarmupOptions options)
    : Schedule("CosineWarmupLR", optimizer), options_(options) {
  check("CosineWarmupLR", cosine_problem(options));
  apply();
}

double CosineWarmupLR::factor(int64_t steps) const {
  const auto at = static_cast<double>(steps);
  const auto warmup = static_cast<double>(options_.warmup_steps);
  if (steps < options_.warmup_steps) return (at + 1) / (warmup + 1);
  if (steps >= options_.total_steps) return options_.min_factor;
  const double progress = (at - warmup) / (static_cast<double>(options_.total_steps) - warmup);
  return options_.min_factor + (1 - options_.min_factor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

void CosineWarmupLR::save_options(State& state) const {
  state.set("warmup_steps", options_.warmup_steps);
  state.set("total_steps", options_.total_steps);
  state.set("min_factor", options_.min_factor);
}

std::function<void()> CosineWarmupLR::prepare_load(StateReader& reader) {
  CosineWarmupOptions options = options_;
  if (const auto* saved = reader.read<int64_t>("warmup_steps")) options.warmup_steps = *saved;
  if (const auto* saved = reader.read<int64_t>("total_steps")) options.total_steps = *saved;
  if (const auto* saved = reader.read<double>("min_factor")) options.min_factor = *saved;
  if (const std::string problem = cosine_problem(options); !problem.empty()) reader.refuse("options", problem);
  return [this, options] { options_ = options; };
}

}}}  // namespace tandem::v0::optim
