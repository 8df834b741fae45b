// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Sets the learning rate of each group of an optimizer to factor(steps) times the group's initial learning rate, its
/// rate when the schedule is constructed. The constructor applies factor(0); each step() adds 1 to the count and
/// applies the next factor. Call step() after each step of the optimizer or after each epoch. The rates are a function
/// of the count, so rounding does not accumulate. The optimizer must outlive the schedule.
class TANDEM_API Schedule {
 public:
  virtual ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Counts a step and sets the learning rates for it.
  void step();
  /// The number of calls of step().
  int64_t steps() const { return steps_; }
  /// The learning rates of the groups that this schedule has set last.
  std::vector<double> last_lr() const;

  /// {"schedule": its name, its options, "steps", "initial_lr": {"<g>"}}.
  State state_dict() const;
  /// Loads the count, options and initial rates; the current rates are part of the optimizer's state. Throws
  /// StateError, changing nothing, unless the state is of the same kind of schedule for equally many groups; the
  /// message lists every entry that is missing, unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// `name` is a literal that begins error texts.
  Schedule(const char* name, Optimizer& optimizer);

  /// The factor of the initial rates after `steps` steps.
  virtual double factor(int64_t steps) const = 0;
  /// Adds the schedule's options to `state`, for state_dict().
  virtual void save_options(State& state) const = 0;
  /// Reads the options and reports to `reader` what does not fit. Returns a function that loads them, called if
  /// everything fits.
  virtual std::function<void()> prepare_load(StateReader& reader) = 0;

  /// Sets the rates; called at the end of each constructor.
  void apply() const;

 private:
  const char* name_;
  Optimizer& optimizer_;
  std::vector<double> initial_;
  int64_t steps_ = 0;
};

/// gamma^floor(steps / step_size): PyTorch's StepLR.
class TANDEM_API StepLR : public Schedule {
 public:
  /// Throws ValueError unless step_size is at least 1 and gamma finite and >= 0.
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 protected:
  double factor(int64_t steps) const override;
  void save_options(State& state) const override;
  std::function<void()> prepare_load(StateReader& reader) override;

 private:
  int64_t step_size_;
  double gamma_;
};

/// gamma^(number of milestones that are at most `steps`): PyTorch's MultiStepLR.
class TANDEM_API MultiStepLR : public Schedule {
 public:
  /// Throws ValueError unless the milestones are at least 1 and ascend and gamma is finite and >= 0.
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 protected:
  double factor(int64_t steps) const override;
  void save_options(State& state) const override;
  std::function<void()> prepare_load(StateReader& reader) override;

 private:
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// Options of CosineWarmupLR.
struct CosineWarmupOptions {
  int64_t warmup_steps = 0;  ///< steps in which the rate rises
  int64_t total_steps = 0;   ///< up to the end of the cosine, including the warm-up
  double min_factor = 0;     ///< of the initial rates, from total_steps on
};

/// Rises linearly as (steps + 1) / (warmup_steps + 1) up to warmup_steps, then falls along half a cosine from 1 to
/// min_factor at total_steps, and is constant from there on: PyTorch's SequentialLR of LinearLR(start_factor = 1 /
/// (warmup_steps + 1), total_iters = warmup_steps) and CosineAnnealingLR(total_steps - warmup_steps). I. Loshchilov, F.
/// Hutter, "SGDR: Stochastic gradient descent with warm restarts", ICLR 2017.
class TANDEM_API CosineWarmupLR : public Schedule {
 public:
  /// Throws ValueError unless 0 <= warmup_steps < total_steps and 0 <= min_factor <= 1.
  CosineWarmupLR(Optimizer& optimizer, CosineWarmupOptions options);

 protected:
  double factor(int64_t steps) const override;
  void save_options(State& state) const override;
  std::function<void()> prepare_load(StateReader& reader) override;

 private:
  CosineWarmupOptions options_;
};

}}}  // namespace tandem::v0::optim
