// Losses, durations and validations of a training, for charts and event files.
#pragma once

#include <tandem/distributed/process_group.h>
#include <tandem/examples/support/plot.h>
#include <tandem/tensor/state.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace examples {

/// Result of an evaluation on validation data.
struct Validation {
  double loss = 0;
  std::optional<double> accuracy = {};  ///< fraction of correct predictions, for classifiers
};

/// Losses and durations of all steps, and all validations. Checkpoints contain it, so that charts show the whole run
/// after a resume.
class Metrics {
 public:
  /// Call after each step with this rank's loss; `seconds` is NaN if the step was not timed.
  void add_step(double loss, double seconds);
  void add_validation(int64_t step, const Validation& validation);
  /// Replaces the losses that were added since the last call by their means over all ranks. Collective.
  void merge(tandem::distributed::ProcessGroup& group);

  const std::vector<double>& losses() const { return losses_; }    ///< of steps 1, 2, ..
  const std::vector<double>& seconds() const { return seconds_; }  ///< of steps 1, 2, ..
  /// The validation of step `step`, if there was one.
  std::optional<Validation> validation(int64_t step) const;

  Plot loss_plot(const std::string& title, const std::string& validation_label) const;
  /// `items_per_step`: over all ranks.
  Plot throughput_plot(const std::string& title, const std::string& items, int64_t items_per_step) const;

  tandem::State state_dict() const;
  void load_state_dict(const tandem::State& state);

 private:
  std::vector<double> losses_;
  std::vector<double> seconds_;
  int64_t merged_ = 0;
  std::vector<int64_t> validation_steps_;
  std::vector<double> validation_losses_;
  std::vector<double> validation_accuracies_;  ///< NaN: no accuracy
};

}  // namespace examples
