#include <tandem/optim/reduce_lr_on_plateau.h>

#include <tandem/tensor/state_reader.h>

#include <algorithm>
#include <limits>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

constexpr const char* kName = "ReduceLROnPlateau";

std::string number(const char* name, double value) {
  return value == value ? "" : str(name, " is ", value, ", expected a number");
}

}  // namespace

std::vector<Option> ReduceLROnPlateau::options_of(ReduceLROnPlateauOptions& o) {
  return {{"mode", &o.mode, nullptr, {"min", "max"}},
          {"factor", &o.factor, in_zero_one},
          {"patience", &o.patience, not_negative},
          {"threshold", &o.threshold, finite},
          {"threshold_mode", &o.threshold_mode, nullptr, {"rel", "abs"}},
          {"cooldown", &o.cooldown, not_negative},
          {"min_lr", &o.min_lr, not_negative},
          {"eps", &o.eps, not_negative}};
}

std::vector<Option> ReduceLROnPlateau::entries_of(Progress& p) {
  return {{"steps", &p.steps, not_negative},
          {"best", &p.best, number},
          {"num_bad_epochs", &p.num_bad_epochs, not_negative},
          {"cooldown_counter", &p.cooldown_counter, not_negative}};
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer), options_(std::move(options)) {
  const std::string problem = problem_of(options_of(options_), optimizer_.num_groups());
  TANDEM_CHECK(ValueError, problem.empty(), kName, ": ", problem);
  progress_.best = std::numeric_limits<double>::infinity() * (options_.mode == "min" ? 1 : -1);
}

void ReduceLROnPlateau::step(double metrics) {
  Progress progress = progress_;
  auto& [best, steps, num_bad_epochs, cooldown_counter] = progress;
  ++steps;
  // "max" is "min" of the negative metric; a relative threshold is a share of |best| only for positive metrics, as in
  // PyTorch.
  const double sign = options_.mode == "min" ? 1 : -1;
  const double limit =
      options_.threshold_mode == "rel" ? best * (1 - sign * options_.threshold) : best - sign * options_.threshold;
  if (sign * metrics < sign * limit) {
    best = metrics;
    num_bad_epochs = 0;
  } else {
    ++num_bad_epochs;
  }
  if (cooldown_counter > 0) {
    --cooldown_counter;
    num_bad_epochs = 0;
  }
  if (num_bad_epochs > options_.patience) {
    std::vector<double> rates = last_lr();  // complete before anything is changed: a group may lack its min_lr
    for (size_t g = 0; g < rates.size(); ++g) {
      const double reduced = std::max(rates[g] * options_.factor, options_.min_lr[static_cast<int64_t>(g)]);
      if (rates[g] - reduced > options_.eps) rates[g] = reduced;
    }
    for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_lr(static_cast<int64_t>(g), rates[g]);
    cooldown_counter = options_.cooldown;
    num_bad_epochs = 0;
  }
  progress_ = progress;
}

std::vector<double> ReduceLROnPlateau::last_lr() const {
  std::vector<double> result;
  for (int64_t g = 0; g < optimizer_.num_groups(); ++g) result.push_back(optimizer_.lr(g));
  return result;
}

State ReduceLROnPlateau::state_dict() const {
  ReduceLROnPlateauOptions options = options_;
  Progress progress = progress_;
  State state;
  state.set("schedule", std::string(kName));
  save_options(options_of(options), state);
  save_options(entries_of(progress), state);
  return state;
}

void ReduceLROnPlateau::load_state_dict(const State& state) {
  StateReader reader(state);
  if (const auto* saved = reader.read<std::string>("schedule"); saved != nullptr && *saved != kName)
    reader.refuse("schedule", str(kName, " expected, ", *saved, " in the state"));
  ReduceLROnPlateauOptions options = options_;
  Progress progress = progress_;
  load_options(options_of(options), reader, "");
  load_options(entries_of(progress), reader, "");
  if (const std::string problem = problem_of(options_of(options), optimizer_.num_groups()); !problem.empty())
    reader.refuse("options", problem);
  if (const std::string problem = problem_of(entries_of(progress), 1); !problem.empty())
    reader.refuse("steps", problem);
  reader.finish(str(kName, ": the state does not fit"));
  options_ = std::move(options);
  progress_ = progress;
}

}}}  // namespace tandem::v0::optim
