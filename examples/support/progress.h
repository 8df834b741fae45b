// Progress of a training run on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

namespace examples {

/// `value` with that many digits behind the point.
std::string fixed(double value, int digits);
/// "1 step", "2 steps".
std::string count(int64_t n, const std::string& noun);

struct ProgressOptions {
  bool enabled = true;  ///< rank 0's; other ranks' does nothing
  int64_t total_steps = 0;
  int64_t items_per_step = 1;  ///< over all ranks
  std::string items;           ///< what the rate counts: "images"
  int64_t steps_per_epoch = 1;
  int64_t log_every = 0;  ///< without a terminal: steps from line to line; 0: a line every few seconds
};

/// Shows loss, rate and time left: one line that is redrawn on a terminal, plain lines otherwise (or where NO_COLOR is set
/// or TERM is "dumb").
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(ProgressOptions options);
  /// Ends a redrawn line.
  ~Progress();

  /// Before the first step of a run that goes on: that many steps are done.
  void start_at(int64_t steps) { steps_ = steps; }
  /// After each step.  Rate and time left come from the steps alone, without the first one, which also sets things up,
  /// and without what a note ends (an evaluation, say).
  void step(double loss);
  /// A line that stays.
  void note(const std::string& text);
  int64_t steps() const { return steps_; }
  /// Mean over about the last twenty steps, of this rank; not a number before the first.
  double loss() const { return mean_loss_; }
  /// What the last step took; not a number for the first one.
  double step_seconds() const { return step_seconds_; }

 private:
  void clear_line();
  void show();

  ProgressOptions options_;
  bool redraw_;
  int64_t steps_ = 0;
  double mean_loss_ = std::numeric_limits<double>::quiet_NaN();
  double step_seconds_ = std::numeric_limits<double>::quiet_NaN();
  bool started_ = false;  ///< a step has been made
  int64_t timed_steps_ = 0;
  double seconds_ = 0;      ///< of timed_steps_ steps
  Clock::time_point last_;  ///< end of the last step or note
  Clock::time_point last_shown_;
  bool line_open_ = false;
};

}  // namespace examples
