// Losses, durations and evaluations of a training, for charts and event files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/state.h>
#include <tandem/train/plot.h>
#include <tandem/train/trainer.h>

namespace tandem { inline namespace v0 { namespace train {

/// Losses and durations of all steps, and all evaluations. Checkpoints contain it, so that charts show the whole
/// training after a resume.
class History {
 public:
  /// `labels`: of the losses of a step, in the chart.
  explicit History(std::vector<std::string> labels = {"training"});

  /// Call after each step with this rank's loss for each label; `seconds` is NaN if the step was not timed.
  void add_step(const std::vector<double>& losses, double seconds);
  void add_evaluation(int64_t step, Evaluation evaluation);
  /// Replaces the losses that were added since the last call by their means over all ranks. Collective.
  void merge(distributed::ProcessGroup& group);

  const std::vector<std::string>& labels() const { return labels_; }
  std::vector<double> losses(size_t label) const;                  ///< of steps 1, 2, ..
  const std::vector<double>& seconds() const { return seconds_; }  ///< of steps 1, 2, ..
  /// The last evaluation if it was made after step `step`, else empty.
  Evaluation evaluation(int64_t step) const;

  Plot loss_plot(const std::string& title, const std::string& evaluation_set) const;
  /// `items_per_step`: over all ranks.
  Plot throughput_plot(const std::string& title, const std::string& items, int64_t items_per_step) const;

  State state_dict() const;
  /// `scale`: factor of the durations, if a step had fewer or more items.
  void load_state_dict(const State& state, double scale = 1);

 private:
  std::vector<std::string> labels_;
  std::vector<double> losses_;  ///< of step 1 for each label, of step 2, ..
  std::vector<double> seconds_;
  int64_t merged_ = 0;                                       ///< number of losses that are means over all ranks
  std::vector<std::pair<int64_t, Evaluation>> evaluations_;  ///< (step, evaluation), ascending
};

}}}  // namespace tandem::v0::train
