// The base class of learning-rate schedules, and how to write one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>
#include <tandem/optim/option.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace optim {

/// The interface that Schedule calls, independent of the type of the options. ScheduleOf implements it.
class TANDEM_API ScheduleRule {
 public:
  virtual ~ScheduleRule() = default;
  virtual const char* name() const = 0;                               ///< in states and error texts
  virtual std::vector<Option> options() = 0;                          ///< pointers into this object
  virtual std::string problem(const Optimizer& optimizer) const = 0;  ///< describes options that do not fit; "" if none
  /// The learning rate of a group with the initial rate `initial` after `steps` steps.
  virtual double rate(double initial, int64_t steps, int64_t group) const = 0;
  /// The rate of a group `steps` steps after another schedule whose last rate was `last`, in SequentialLR.
  virtual double rate_after(double last, int64_t steps, int64_t group) const = 0;
  /// The momentum of a group after `steps` steps; nullopt if the schedule leaves it unchanged.
  virtual std::optional<double> momentum(int64_t steps, int64_t group) const = 0;
  /// Whether initial rates are the rates before the first step() (in SequentialLR: the last rates of the previous
  /// schedule), instead of the rates at construction.
  virtual bool starts_at_first_step() const = 0;
  virtual std::unique_ptr<ScheduleRule> clone() const = 0;  ///< a copy with its own options
};

/// The options of a schedule of any kind, as a part of SequentialLR or ChainedScheduler.
class AnySchedule {
 public:
  /// The type S is described in ScheduleOf.
  template <class S>
  requires requires { S::kName; }
  AnySchedule(S options) : rule_(std::make_unique<RuleOf<S>>(std::move(options))) {}
  AnySchedule(const AnySchedule& other) : rule_(other.rule_->clone()) {}
  AnySchedule(AnySchedule&&) noexcept = default;
  AnySchedule& operator=(AnySchedule other) noexcept {
    rule_ = std::move(other.rule_);
    return *this;
  }
  ~AnySchedule() = default;

  /// The rule.
  ScheduleRule* operator->() { return rule_.get(); }
  /// The rule.
  const ScheduleRule* operator->() const { return rule_.get(); }

 private:
  template <class S>
  struct RuleOf final : ScheduleRule {
    explicit RuleOf(S s) : schedule(std::move(s)) {}
    const char* name() const override { return S::kName; }
    std::vector<Option> options() override { return schedule.options(); }
    std::string problem(const Optimizer& optimizer) const override {
      if constexpr (requires { schedule.problem(optimizer); }) return schedule.problem(optimizer);
      return "";
    }
    double rate(double initial, int64_t steps, int64_t group) const override {
      if constexpr (requires { schedule.factor_at(steps); }) {
        return initial * schedule.factor_at(steps);
      } else {
        return schedule.rate_at(initial, steps, group);
      }
    }
    double rate_after(double last, int64_t steps, int64_t group) const override {
      if constexpr (requires { schedule.rate_after(last, steps, group); }) {
        return schedule.rate_after(last, steps, group);
      } else {
        return rate(last, steps, group);
      }
    }
    std::optional<double> momentum(int64_t steps, int64_t group) const override {
      if constexpr (requires { schedule.momentum_at(steps, group); }) return schedule.momentum_at(steps, group);
      return std::nullopt;
    }
    bool starts_at_first_step() const override {
      return requires { S::kStartsAtFirstStep; };
    }
    std::unique_ptr<ScheduleRule> clone() const override { return std::make_unique<RuleOf>(schedule); }

    S schedule;
  };

  std::unique_ptr<ScheduleRule> rule_;
};

/// Sets the learning rate of each group of an optimizer to a function of the number of steps and of the group's initial
/// learning rate, its rate when the schedule is constructed. The constructor applies the rates of step 0; each step()
/// adds 1 to the count and applies the next rates. Call step() after each step of the optimizer or after each epoch.
/// Rates are computed from the count, so rounding does not accumulate. A group that is added to the optimizer later is
/// included from the next step() on; the rate that it has then is its initial rate. An option with a list of values
/// (PerGroup) needs a value for each group, also for groups that are added later; otherwise step() throws IndexError.
///
/// Use one schedule per optimizer, because each schedule overwrites the rates that another schedule has set; combine
/// schedules by ChainedScheduler or SequentialLR. The optimizer must outlive the schedule.
class TANDEM_API Schedule {
 public:
  virtual ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Counts a step and sets the learning rates for it. Throws, changing nothing, the exceptions of the schedule's
  /// function, and ValueError for a rate or momentum that the optimizer rejects.
  void step();
  /// The number of calls of step(), or the argument of set_steps() and the calls since then.
  int64_t steps() const { return steps_; }
  /// Sets the number of steps and the learning rates for it, for example if a resumed training has steps of another
  /// size. Throws ValueError if `steps` is negative, and as step().
  void set_steps(int64_t steps);
  /// The learning rates that this schedule set last, one per group.
  const std::vector<double>& last_lr() const { return last_; }

  /// {"schedule": its name, its options, "steps", "initial_lr": {"<g>"}}. Functions are not saved.
  State state_dict() const;
  /// Loads the count, options and initial rates; the current rates are part of the optimizer's state. Throws
  /// StateError, changing nothing, unless the state is that of a schedule of the same kind with the same number of
  /// groups. The message lists every entry that is missing, unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// Throws ValueError for wrong options.
  Schedule(Optimizer& optimizer, AnySchedule rule);

 private:
  void apply(int64_t steps, std::vector<double> initial);
  /// `rates`, followed by the current rates of the groups that it lacks.
  std::vector<double> extend(std::vector<double> rates) const;

  Optimizer& optimizer_;
  mutable AnySchedule rule_;
  std::vector<double> initial_;  ///< rates of the groups
  std::vector<double> last_;     ///< rates of the groups
  int64_t steps_ = 0;
};

/// The schedule of the options S, a struct with
///
///     static constexpr const char* kName        its name in states and error texts
///     std::vector<Option> options()             its options, as in an optimizer
///     double factor_at(int64_t steps) const     the rate after `steps` steps divided by the initial rate, or
///     double rate_at(double initial, int64_t steps, int64_t group) const                    the rate of a group
///
/// and, where needed,
///
///     std::string problem(const Optimizer&) const               describes options that do not fit; "" if all do
///     std::optional<double> momentum_at(int64_t steps, int64_t group) const     the momentum of a group, or none
///     static constexpr bool kStartsAtFirstStep = true           its initial rates are the rates before the first
///                                                               step() (SequentialLR: the previous schedule's last)
///     double rate_after(double last, int64_t steps, int64_t group) const    replaces rate_at(last, ..) in SequentialLR
///
///     struct InverseSqrtLROptions {
///       int64_t warmup_steps = 100;
///       static constexpr const char* kName = "InverseSqrtLR";
///       std::vector<optim::Option> options() { return {{"warmup_steps", &warmup_steps, optim::at_least_one}}; }
///       double factor_at(int64_t steps) const { return 1 / std::sqrt(std::max(1.0, double(steps) / warmup_steps)); }
///     };
///     using InverseSqrtLR = optim::ScheduleOf<InverseSqrtLROptions>;
template <class S>
class ScheduleOf : public Schedule {
 public:
  using Options = S;  ///< the options
  /// Applies the rates of step 0. Throws ValueError for wrong options.
  ScheduleOf(Optimizer& optimizer, S options) : Schedule(optimizer, AnySchedule(std::move(options))) {}
};

}}}  // namespace tandem::v0::optim
