// A learning-rate schedule that follows a metric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>
#include <tandem/optim/option.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of ReduceLROnPlateau.
struct ReduceLROnPlateauOptions {
  std::string mode = "min";            ///< the metric should become small ("min") or large ("max")
  double factor = 0.1;                 ///< factor of the learning rate at a reduction, in [0, 1)
  int64_t patience = 10;               ///< steps without improvement that are tolerated
  double threshold = 1e-4;             ///< required improvement over the best metric so far
  std::string threshold_mode = "rel";  ///< `threshold` times the best metric ("rel"), or `threshold` itself ("abs")
  int64_t cooldown = 0;                ///< number of steps after a reduction in which bad metrics are not counted
  PerGroup<double> min_lr = 0;         ///< lower limit of the rates
  double eps = 1e-8;                   ///< minimum change of a rate; smaller changes are skipped
};

/// PyTorch's ReduceLROnPlateau: multiplies the learning rates by `factor` after more than `patience` consecutive steps
/// whose metric is not better than the best metric so far. A metric is better if
///
///     metric < best (1 - threshold)  or  metric < best - threshold      (mode "min": threshold_mode "rel" or "abs")
///     metric > best (1 + threshold)  or  metric > best + threshold      (mode "max")
///
/// With data-parallel training give all ranks the same metric, so that their rates stay equal. The optimizer must
/// outlive the schedule.
class TANDEM_API ReduceLROnPlateau {
 public:
  /// Throws ValueError for wrong options.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  /// Counts a step with this metric, for instance the validation loss after an epoch. A metric that is NaN does not
  /// count as an improvement. Throws IndexError, changing nothing, if min_lr is a list without a value for a group that
  /// was added to the optimizer.
  void step(double metrics);
  /// The current learning rates of the groups.
  std::vector<double> last_lr() const;

  /// {"schedule", the options, "steps", "best", "num_bad_epochs", "cooldown_counter"}.
  State state_dict() const;
  /// Throws StateError, changing nothing, if the state does not fit; the message lists every mismatch.
  void load_state_dict(const State& state);

 private:
  struct Progress {
    double best;
    int64_t steps = 0;
    int64_t num_bad_epochs = 0;
    int64_t cooldown_counter = 0;
  };
  static std::vector<Option> options_of(ReduceLROnPlateauOptions& options);
  static std::vector<Option> entries_of(Progress& progress);

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  Progress progress_;
};

}}}  // namespace tandem::v0::optim
