#include <tandem/optim/schedule.h>

#include <tandem/base/math.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

/// The option that is set to the schedule's momentum; null if the optimizer has no such option.
const char* momentum_option(const Optimizer& optimizer) {
  return optimizer.has_option("momentum") ? "momentum" : optimizer.has_option("beta1") ? "beta1" : nullptr;
}

/// Describes invalid options; "" if they are valid.
std::string problem_of(AnySchedule& rule, const Optimizer& optimizer) {
  const std::vector<Option> options = rule->options();
  if (std::string problem = problem_of(options, optimizer.num_groups()); !problem.empty()) return problem;
  for (const Option& option : options) {
    auto* const* parts = std::get_if<std::vector<AnySchedule>*>(&option.value);
    if (parts == nullptr) continue;
    for (AnySchedule& part : **parts) {
      if (std::string problem = problem_of(part, optimizer); !problem.empty()) return problem;
    }
  }
  if (std::string problem = rule->problem(optimizer); !problem.empty()) return problem;
  if (rule->momentum(0, 0).has_value() && momentum_option(optimizer) == nullptr)
    return "cycle_momentum needs an optimizer with the option momentum or betas";
  return "";
}

std::vector<double> rates_at(const AnySchedule& rule, int64_t steps, const std::vector<double>& initial) {
  std::vector<double> rates;
  for (size_t g = 0; g < initial.size(); ++g) rates.push_back(rule->rate(initial[g], steps, static_cast<int64_t>(g)));
  return rates;
}

/// Sets the groups' rates and momenta: all of them or, if this throws, nothing.
void set_rates(Optimizer& optimizer, const std::vector<double>& rates,
               const std::vector<std::optional<double>>& momenta) {
  struct Change {
    int64_t group;
    const char* option;
    double before;
  };
  std::vector<Change> changes;
  const auto set = [&](int64_t group, const char* option, double value) {
    changes.push_back({group, option, optimizer.option(group, option)});
    optimizer.set_option(group, option, value);
  };
  try {
    for (size_t g = 0; g < rates.size(); ++g) {
      set(static_cast<int64_t>(g), "lr", rates[g]);
      if (momenta[g]) set(static_cast<int64_t>(g), momentum_option(optimizer), *momenta[g]);
    }
  } catch (...) {
    for (auto change = changes.rbegin(); change != changes.rend(); ++change)
      optimizer.set_option(change->group, change->option, change->before);
    throw;
  }
}

}  // namespace

Schedule::Schedule(Optimizer& optimizer, AnySchedule rule) : optimizer_(optimizer), rule_(std::move(rule)) {
  const std::string problem = problem_of(rule_, optimizer_);
  TANDEM_CHECK(ValueError, problem.empty(), rule_->name(), ": ", problem);
  apply(0, extend({}));
}

Schedule::~Schedule() = default;

void Schedule::step() {
  const bool starts = steps_ == 0 && rule_->starts_at_first_step();
  apply(saturating_add(steps_, 1), extend(starts ? std::vector<double>() : initial_));
}

void Schedule::set_steps(int64_t steps) {
  TANDEM_CHECK(ValueError, steps >= 0, rule_->name(), ": steps is ", steps, ", expected at least 0");
  apply(steps, extend(initial_));
}

std::vector<double> Schedule::extend(std::vector<double> rates) const {
  for (auto g = static_cast<int64_t>(rates.size()); g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

void Schedule::apply(int64_t steps, std::vector<double> initial) {
  std::vector<double> rates = rates_at(rule_, steps, initial);
  std::vector<std::optional<double>> momenta;
  for (size_t g = 0; g < initial.size(); ++g) momenta.push_back(rule_->momentum(steps, static_cast<int64_t>(g)));
  set_rates(optimizer_, rates, momenta);
  initial_ = std::move(initial);
  last_ = std::move(rates);
  steps_ = steps;
}

State Schedule::state_dict() const {
  State state;
  state.set("schedule", std::string(rule_->name()));
  save_options(rule_->options(), state);
  state.set("steps", steps_);
  const std::vector<double> initial = extend(initial_);
  for (size_t g = 0; g < initial.size(); ++g) state.set(str("initial_lr.", g), initial[g]);
  return state;
}

void Schedule::load_state_dict(const State& state) {
  StateReader reader(state);
  if (const auto* saved = reader.read<std::string>("schedule"); saved != nullptr && *saved != rule_->name())
    reader.refuse("schedule", str(rule_->name(), " expected, ", *saved, " in the state"));
  const auto* steps = reader.read<int64_t>("steps");
  if (steps != nullptr && *steps < 0) reader.refuse("steps", str("is ", *steps, ", expected at least 0"));
  std::vector<double> initial;
  for (int64_t g = 0; g < optimizer_.num_groups(); ++g) {
    const std::string path = str("initial_lr.", g);
    const auto* saved = reader.read<double>(path);
    if (saved == nullptr) continue;
    if (const std::string problem = not_negative("initial_lr", *saved); !problem.empty()) reader.refuse(path, problem);
    initial.push_back(*saved);
  }
  AnySchedule rule = rule_;
  load_options(rule->options(), reader, "");
  if (const std::string problem = problem_of(rule, optimizer_); !problem.empty()) reader.refuse("options", problem);
  const std::string heading = str(rule_->name(), ": the state does not fit");
  reader.finish(heading);
  std::vector<double> last;
  try {
    last = rates_at(rule, *steps, initial);
  } catch (const ValueError& error) {  // of a schedule that has fewer steps
    reader.refuse("steps", error.what());
    reader.finish(heading);
  }
  rule_ = std::move(rule);
  initial_ = std::move(initial);
  last_ = std::move(last);
  steps_ = *steps;
}

}}}  // namespace tandem::v0::optim
