// Shows the progress of a training on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace train {

/// Options of Progress.
struct ProgressOptions {
  bool enabled = true;                         ///< false: prints nothing; true on rank 0
  int64_t total_steps = 0;                     ///< of the whole training
  int64_t items_per_step = 1;                  ///< over all ranks
  std::string items;                           ///< unit of the rate: "images"
  int64_t steps_per_epoch = 1;                 ///< of the optimizer
  int64_t log_every = 0;                       ///< without a terminal: steps between lines; 0: a line every few seconds
  std::vector<std::string> losses = {"loss"};  ///< names of the losses of a step
};

/// Shows loss, rate and remaining time: as one redrawn line on a terminal, as plain lines otherwise, or if NO_COLOR is
/// set or TERM is "dumb".
class TANDEM_API Progress {
 public:
  /// The clock of rate and remaining time.
  using Clock = std::chrono::steady_clock;

  /// Prints nothing yet.
  explicit Progress(ProgressOptions options);
  /// Clears the redrawn line.
  ~Progress();

  /// Call before the first step of a resumed run. `steps`: the number of completed steps. `position`: the number of
  /// steps of this run's size for the same data; it differs if the completed steps had another size, and counts for
  /// total_steps and steps_per_epoch.
  void start_at(int64_t steps, int64_t position) {
    steps_ = steps;
    earlier_ = steps - position;
  }
  /// Call after each step. Rate and remaining time exclude the first step, which also initializes, and the time from
  /// the end of a step to a note, for instance of an evaluation.
  void step(double loss) { step(std::vector<double>{loss}); }
  /// As above, with a value for each name in ProgressOptions::losses.
  void step(const std::vector<double>& losses);
  /// Prints a line that is not redrawn.
  void note(const std::string& text);
  int64_t steps() const { return steps_; }  ///< number of completed steps
  /// Moving averages of this rank's losses over about 20 steps, as text: "loss 0.3102"; NaN before the first step.
  std::string losses() const;
  /// Duration of the last step; NaN for the first step.
  double step_seconds() const { return step_seconds_; }

 private:
  void clear_line();
  void show();

  ProgressOptions options_;
  bool redraw_;
  int64_t steps_ = 0;
  int64_t earlier_ = 0;  ///< steps_ without it counts for total_steps and steps_per_epoch
  std::vector<double> mean_losses_;
  double step_seconds_ = std::numeric_limits<double>::quiet_NaN();
  bool started_ = false;  ///< at least one step was made
  int64_t timed_steps_ = 0;
  double seconds_ = 0;      ///< of timed_steps_ steps
  Clock::time_point last_;  ///< end of the last step or note
  Clock::time_point last_shown_;
  bool line_open_ = false;
};

}}}  // namespace tandem::v0::train
