// Learning rates that change from step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Sets the learning rate of each group of an optimizer to factor(steps) times the group's initial one, which is the
/// one it has when the schedule is made.  Making it applies factor(0); each step() afterwards counts one step, of an
/// optimizer or of an epoch as the caller likes, and applies the next factor.  The rates are a function of the count:
/// nothing accumulates.  The optimizer must outlive the schedule; of two schedules of one optimizer, the last to step
/// wins.
class TANDEM_API Schedule {
 public:
  virtual ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  void step();
  /// How often step() was called.
  int64_t steps() const { return steps_; }
  /// The rates of the groups as this schedule last set them.
  std::vector<double> last_lr() const;

  /// {"schedule": its name, its options, "steps", "initial_lr": {"<g>"}}.
  State state_dict() const;
  /// Takes count, options and initial rates over; the present rates are in the optimizer's own state.  Throws
  /// StateError, changing nothing, unless the state is of the same kind of schedule for as many groups; the message
  /// lists every entry that is missing, unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// `name` is a literal that begins error texts.
  Schedule(const char* name, Optimizer& optimizer);

  /// What the initial rates are multiplied with after so many steps.
  virtual double factor(int64_t steps) const = 0;
  virtual void save_options(State& state) const = 0;
  /// As Optimizer::prepare_load.
  virtual std::function<void()> prepare_load(StateReader& reader) = 0;

  /// Sets the rates; the last thing that a constructor does.
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

struct CosineWarmupOptions {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  ///< to the end of the cosine, the warm-up included
  double min_factor = 0;    ///< of the initial rates, from total_steps on
};

/// Rises linearly, (steps + 1) / (warmup_steps + 1), up to warmup_steps, then falls along half a cosine from 1 to
/// min_factor at total_steps, where it stays: PyTorch's SequentialLR of LinearLR(start_factor = 1 / (warmup_steps + 1),
/// total_iters = warmup_steps) and CosineAnnealingLR(total_steps - warmup_steps).  I. Loshchilov, F. Hutter, "SGDR:
/// Stochastic gradient descent with warm restarts", ICLR 2017.
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
