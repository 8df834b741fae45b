// The learning-rate schedules of torch.optim.lr_scheduler, except for ReduceLROnPlateau, which has its own file.
//
// In the formulas t is the number of steps, lr(0) the group's initial learning rate, and lr the rate after t steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tandem/optim/schedule.h>

namespace tandem { inline namespace v0 { namespace optim {

/// A function of the number of steps.
using StepFunction = std::function<double(int64_t steps)>;

/// lr = lr(0) lr_lambda(t): LambdaLR.
struct TANDEM_API LambdaLROptions {
  PerGroup<StepFunction> lr_lambda;  ///< not saved in states

  static constexpr const char* kName = "LambdaLR";        ///< its name in states and error texts
  std::vector<Option> options();                          ///< its options
  std::string problem(const Optimizer& optimizer) const;  ///< describes options that do not fit; "" if all do
  double rate_at(double initial, int64_t steps, int64_t group) const;  ///< the rate of a group
};
/// The schedule of LambdaLROptions.
using LambdaLR = ScheduleOf<LambdaLROptions>;

/// lr = lr(0) lr_lambda(1) lr_lambda(2) .. lr_lambda(t), where lr(0) is the rate before the first step():
/// MultiplicativeLR. A step calls the function once; load_state_dict calls it for all earlier steps. In SequentialLR a
/// later part begins at the last rate of the previous part, times lr_lambda(0), as in PyTorch.
struct TANDEM_API MultiplicativeLROptions {
  PerGroup<StepFunction> lr_lambda;  ///< not saved in states

  static constexpr const char* kName = "MultiplicativeLR";  ///< its name in states and error texts
  static constexpr bool kStartsAtFirstStep = true;          ///< see ScheduleOf
  std::vector<Option> options();                            ///< its options
  std::string problem(const Optimizer& optimizer) const;    ///< describes options that do not fit; "" if all do
  double rate_at(double initial, int64_t steps, int64_t group) const;  ///< the rate of a group
  double rate_after(double last, int64_t steps, int64_t group) const;  ///< the rate after another schedule

  /// The product of the function's values in a number of steps.
  struct Product {
    int64_t steps = 0;                        ///< number of steps
    double value = 1;                         ///< the product
    std::optional<double> at_milestone = {};  ///< lr_lambda(0), for rate_after
  };
  mutable std::vector<Product> products = {};  ///< a cache of each group's last product; not an option
};
/// The schedule of MultiplicativeLROptions.
using MultiplicativeLR = ScheduleOf<MultiplicativeLROptions>;

/// lr = lr(0) gamma^floor(t / step_size): StepLR.
struct TANDEM_API StepLROptions {
  int64_t step_size;   ///< steps between two changes
  double gamma = 0.1;  ///< factor of a change

  static constexpr const char* kName = "StepLR";  ///< its name in states and error texts
  std::vector<Option> options();                  ///< its options
  double factor_at(int64_t steps) const;          ///< the rate divided by the initial rate
};
/// The schedule of StepLROptions.
using StepLR = ScheduleOf<StepLROptions>;

/// lr = lr(0) gamma^(number of milestones that are at most t): MultiStepLR.
struct TANDEM_API MultiStepLROptions {
  std::vector<int64_t> milestones;  ///< steps that change the rate, ascending; a repeated step changes it repeatedly
  double gamma = 0.1;               ///< factor of a change

  static constexpr const char* kName = "MultiStepLR";     ///< its name in states and error texts
  std::vector<Option> options();                          ///< its options
  std::string problem(const Optimizer& optimizer) const;  ///< describes options that do not fit; "" if all do
  double factor_at(int64_t steps) const;                  ///< the rate divided by the initial rate
};
/// The schedule of MultiStepLROptions.
using MultiStepLR = ScheduleOf<MultiStepLROptions>;

/// lr = lr(0) factor while t < total_iters, then lr(0): ConstantLR.
struct TANDEM_API ConstantLROptions {
  double factor = 1.0 / 3;  ///< factor of the first steps, in [0, 1]
  int64_t total_iters = 5;  ///< number of these steps

  static constexpr const char* kName = "ConstantLR";  ///< its name in states and error texts
  std::vector<Option> options();                      ///< its options
  /// the rate divided by the initial rate
  double factor_at(int64_t steps) const { return steps < total_iters ? factor : 1; }
};
/// The schedule of ConstantLROptions.
using ConstantLR = ScheduleOf<ConstantLROptions>;

/// lr = lr(0) (start_factor + (end_factor - start_factor) min(t, total_iters) / total_iters): LinearLR.
struct TANDEM_API LinearLROptions {
  double start_factor = 1.0 / 3;  ///< in (0, 1]
  double end_factor = 1.0;        ///< in [0, 1]
  int64_t total_iters = 5;        ///< steps from start_factor to end_factor

  static constexpr const char* kName = "LinearLR";  ///< its name in states and error texts
  std::vector<Option> options();                    ///< its options
  double factor_at(int64_t steps) const;            ///< the rate divided by the initial rate
};
/// The schedule of LinearLROptions.
using LinearLR = ScheduleOf<LinearLROptions>;

/// lr = lr(0) gamma^t: ExponentialLR.
struct TANDEM_API ExponentialLROptions {
  double gamma;  ///< factor of each step

  static constexpr const char* kName = "ExponentialLR";  ///< its name in states and error texts
  std::vector<Option> options();                         ///< its options
  double factor_at(int64_t steps) const;                 ///< the rate divided by the initial rate
};
/// The schedule of ExponentialLROptions.
using ExponentialLR = ScheduleOf<ExponentialLROptions>;

/// lr = lr(0) (1 - min(t, total_iters) / total_iters)^power: PolynomialLR.
struct TANDEM_API PolynomialLROptions {
  int64_t total_iters = 5;  ///< steps until the rate is 0
  double power = 1.0;       ///< exponent

  static constexpr const char* kName = "PolynomialLR";  ///< its name in states and error texts
  std::vector<Option> options();                        ///< its options
  double factor_at(int64_t steps) const;                ///< the rate divided by the initial rate
};
/// The schedule of PolynomialLROptions.
using PolynomialLR = ScheduleOf<PolynomialLROptions>;

/// lr = eta_min + (lr(0) - eta_min) (1 + cos(pi t / T_max)) / 2: CosineAnnealingLR. It rises again after T_max steps,
/// as in PyTorch.
///
/// I. Loshchilov, F. Hutter, "SGDR: Stochastic gradient descent with warm restarts", ICLR 2017.
struct TANDEM_API CosineAnnealingLROptions {
  int64_t T_max;       ///< steps until eta_min
  double eta_min = 0;  ///< smallest rate

  static constexpr const char* kName = "CosineAnnealingLR";            ///< its name in states and error texts
  std::vector<Option> options();                                       ///< its options
  double rate_at(double initial, int64_t steps, int64_t group) const;  ///< the rate of a group
};
/// The schedule of CosineAnnealingLROptions.
using CosineAnnealingLR = ScheduleOf<CosineAnnealingLROptions>;

/// Half cosines from lr(0) to eta_min over T_0, T_0 T_mult, T_0 T_mult^2, .. steps: CosineAnnealingWarmRestarts.
struct TANDEM_API CosineAnnealingWarmRestartsOptions {
  int64_t T_0;         ///< steps until the first restart
  int64_t T_mult = 1;  ///< length of each cycle divided by the length of the previous cycle
  double eta_min = 0;  ///< smallest rate

  static constexpr const char* kName = "CosineAnnealingWarmRestarts";  ///< its name in states and error texts
  std::vector<Option> options();                                       ///< its options
  double rate_at(double initial, int64_t steps, int64_t group) const;  ///< the rate of a group
};
/// The schedule of CosineAnnealingWarmRestartsOptions.
using CosineAnnealingWarmRestarts = ScheduleOf<CosineAnnealingWarmRestartsOptions>;

/// lr / lr(0) rises linearly as (t + 1) / (warmup_steps + 1) up to warmup_steps, then falls along half a cosine from 1
/// to min_factor at total_steps, and is constant afterwards: PyTorch's SequentialLR of LinearLR(start_factor = 1 /
/// (warmup_steps + 1), total_iters = warmup_steps) and CosineAnnealingLR(total_steps - warmup_steps).
struct TANDEM_API CosineWarmupLROptions {
  int64_t warmup_steps = 0;  ///< steps in which the rate rises
  int64_t total_steps = 0;   ///< up to the end of the cosine, including the warm-up
  double min_factor = 0;     ///< factor of the initial rates from total_steps on; in [0, 1]

  static constexpr const char* kName = "CosineWarmupLR";  ///< its name in states and error texts
  std::vector<Option> options();                          ///< its options
  std::string problem(const Optimizer& optimizer) const;  ///< describes options that do not fit; "" if all do
  double factor_at(int64_t steps) const;                  ///< the rate divided by the initial rate
};
/// The schedule of CosineWarmupLROptions.
using CosineWarmupLR = ScheduleOf<CosineWarmupLROptions>;

/// Cycles between two rates: CyclicLR. s rises linearly from 0 to 1 for step_size_up steps and falls to 0 for
/// step_size_down steps; c = 1, 2, .. is the number of the cycle:
///
///     lr = base_lr + (max_lr - base_lr) s scale
///     momentum = max_momentum - (max_momentum - base_momentum) s scale        (if cycle_momentum)
///     scale = 1 (mode "triangular"), 2^(1 - c) ("triangular2") or gamma^t ("exp_range"); or scale_fn(c) (scale_mode
///             "cycle") or scale_fn(t) ("iterations")
///
/// The momentum is the optimizer's option `momentum` or the first of its `betas`. L. N. Smith, "Cyclical learning rates
/// for training neural networks", WACV 2017.
struct TANDEM_API CyclicLROptions {
  PerGroup<double> base_lr;                     ///< lowest rate
  PerGroup<double> max_lr;                      ///< highest rate of the first cycle
  int64_t step_size_up = 2000;                  ///< rising steps
  int64_t step_size_down = 0;                   ///< falling steps; 0: step_size_up
  std::string mode = "triangular";              ///< "triangular", "triangular2" or "exp_range"
  double gamma = 1.0;                           ///< base of the scale in mode "exp_range"
  std::function<double(double)> scale_fn = {};  ///< replaces `mode`; not saved in states
  std::string scale_mode = "cycle";             ///< argument of scale_fn: "cycle" or "iterations"
  bool cycle_momentum = true;                   ///< whether the momentum changes too
  PerGroup<double> base_momentum = 0.8;         ///< momentum at max_lr
  PerGroup<double> max_momentum = 0.9;          ///< momentum at base_lr

  static constexpr const char* kName = "CyclicLR";                        ///< its name in states and error texts
  std::vector<Option> options();                                          ///< its options
  double rate_at(double initial, int64_t steps, int64_t group) const;     ///< the rate of a group
  std::optional<double> momentum_at(int64_t steps, int64_t group) const;  ///< the momentum of a group
  double scale(int64_t steps) const;                                      ///< s times scale
};
/// The schedule of CyclicLROptions.
using CyclicLR = ScheduleOf<CyclicLROptions>;

/// One cycle: OneCycleLR. The rate rises from max_lr / div_factor to max_lr in the first pct_start total_steps steps,
/// then falls to max_lr / (div_factor final_div_factor), along half cosines ("cos") or lines ("linear"). With
/// three_phase it falls to max_lr / div_factor as fast as it rose, and then to the last rate. The momentum moves the
/// opposite way between max_momentum and base_momentum. The last rate is reached at step total_steps - 1; at step
/// total_steps, whose rate a training loop sets but does not use, a line stays at the last rate and a cosine rises. A
/// later step throws ValueError. L. N. Smith, N. Topin, "Super-convergence", 2018.
struct TANDEM_API OneCycleLROptions {
  PerGroup<double> max_lr;                ///< highest rate
  int64_t total_steps = 0;                ///< length of the cycle; 0: epochs times steps_per_epoch
  int64_t epochs = 0;                     ///< if total_steps is 0
  int64_t steps_per_epoch = 0;            ///< if total_steps is 0
  double pct_start = 0.3;                 ///< share of the steps in which the rate rises, in [0, 1]
  std::string anneal_strategy = "cos";    ///< "cos" or "linear"
  bool cycle_momentum = true;             ///< whether the momentum changes too
  PerGroup<double> base_momentum = 0.85;  ///< momentum at max_lr
  PerGroup<double> max_momentum = 0.95;   ///< momentum at both ends
  double div_factor = 25;                 ///< max_lr divided by the first rate
  double final_div_factor = 1e4;          ///< the first rate divided by the last
  bool three_phase = false;               ///< two phases of equal length, then one to the last rate

  static constexpr const char* kName = "OneCycleLR";      ///< its name in states and error texts
  std::vector<Option> options();                          ///< its options
  std::string problem(const Optimizer& optimizer) const;  ///< describes options that do not fit; "" if all do
  double rate_at(double initial, int64_t steps, int64_t group) const;         ///< the rate of a group
  std::optional<double> momentum_at(int64_t steps, int64_t group) const;      ///< the momentum of a group
  double anneal(int64_t steps, double first, double top, double last) const;  ///< first to top, then to last
  int64_t length() const;                                                     ///< of the cycle
};
/// The schedule of OneCycleLROptions.
using OneCycleLR = ScheduleOf<OneCycleLROptions>;

/// The rate changes from the group's rate at the first step() to swa_lr over anneal_epochs steps, along half a cosine
/// ("cos") or a line ("linear"): torch.optim.swa_utils.SWALR, the learning rate of stochastic weight averaging.
///
/// P. Izmailov et al., "Averaging weights leads to wider optima and better generalization", UAI 2018.
struct TANDEM_API SWALROptions {
  PerGroup<double> swa_lr;              ///< last rate
  int64_t anneal_epochs = 10;           ///< steps until swa_lr; 0: swa_lr is set at once
  std::string anneal_strategy = "cos";  ///< "cos" or "linear"

  static constexpr const char* kName = "SWALR";                        ///< its name in states and error texts
  static constexpr bool kStartsAtFirstStep = true;                     ///< see ScheduleOf
  std::vector<Option> options();                                       ///< its options
  double rate_at(double initial, int64_t steps, int64_t group) const;  ///< the rate of a group
};
/// The schedule of SWALROptions.
using SWALR = ScheduleOf<SWALROptions>;

/// Schedules one after the other: SequentialLR. Schedule i counts its steps from milestone i - 1 on. Its initial rate
/// is the group's, or for SWALR and MultiplicativeLR the last rate of the previous schedule.
///
///     optim::SequentialLR schedule(optimizer, {.schedulers = {optim::LinearLROptions{.total_iters = 10},
///                                                             optim::CosineAnnealingLROptions{.T_max = 90}},
///                                              .milestones = {10}});
///
/// The parts are options, not schedules, so that they share one count and one state, and the order of construction does
/// not matter.
struct TANDEM_API SequentialLROptions {
  std::vector<AnySchedule> schedulers;  ///< one more than milestones
  std::vector<int64_t> milestones;      ///< steps at which the next schedule begins, ascending

  static constexpr const char* kName = "SequentialLR";    ///< its name in states and error texts
  std::vector<Option> options();                          ///< its options
  std::string problem(const Optimizer& optimizer) const;  ///< describes options that do not fit; "" if all do
  double rate_at(double initial, int64_t steps, int64_t group) const;     ///< the rate of a group
  std::optional<double> momentum_at(int64_t steps, int64_t group) const;  ///< the momentum of a group
};
/// The schedule of SequentialLROptions.
using SequentialLR = ScheduleOf<SequentialLROptions>;

/// Several schedules at once: ChainedScheduler. Each takes the rate of the previous schedule as its initial rate, so
/// that factors multiply; CyclicLR and OneCycleLR replace the rate. The last schedule with a momentum sets it.
///
/// Rates are PyTorch's for factors that do not depend on the initial rate. They differ for LambdaLR,
/// CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR and SWALR, whose PyTorch versions compute their rates from the
/// optimizer's initial or current rate, and for CosineAnnealingLR with an eta_min or after T_max steps.
struct TANDEM_API ChainedSchedulerOptions {
  std::vector<AnySchedule> schedulers;  ///< at least one

  static constexpr const char* kName = "ChainedScheduler";  ///< its name in states and error texts
  std::vector<Option> options();                            ///< its options
  std::string problem(const Optimizer& optimizer) const;    ///< describes options that do not fit; "" if all do
  double rate_at(double initial, int64_t steps, int64_t group) const;     ///< the rate of a group
  std::optional<double> momentum_at(int64_t steps, int64_t group) const;  ///< the momentum of a group
};
/// The schedule of ChainedSchedulerOptions.
using ChainedScheduler = ScheduleOf<ChainedSchedulerOptions>;

}}}  // namespace tandem::v0::optim
