// Progress of a training run on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace examples {

/// `value` with that many digits behind the point.
std::string fixed(double value, int digits);
/// "1 step", "2 steps".
std::string count(int64_t n, const std::string& noun);

/// Shows loss, rate and time left: one line that is redrawn on a terminal, a plain line every few seconds otherwise (or
/// where NO_COLOR is set or TERM is "dumb").  Rank 0 owns one; other ranks' does nothing.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `total_steps` of `items_per_step` items over all ranks.
  Progress(bool enabled, int64_t total_steps, int64_t items_per_step);
  /// Ends a redrawn line.
  ~Progress();

  /// After each step.  Rate and time left come from the steps alone, without the first one, which also sets things up,
  /// and without what a note ends (an evaluation, say).
  void step(int64_t epoch, double loss);
  /// A line that stays.
  void note(const std::string& text);
  int64_t steps() const { return steps_; }
  /// Mean over about the last twenty steps, of this rank.
  double loss() const { return mean_loss_; }

 private:
  void clear_line();
  void show(int64_t epoch);

  bool enabled_;
  bool redraw_;
  int64_t total_steps_;
  int64_t items_per_step_;
  int64_t steps_ = 0;
  double mean_loss_ = 0;
  int64_t timed_steps_ = 0;
  double seconds_ = 0;      ///< of timed_steps_ steps
  Clock::time_point last_;  ///< end of the last step or note
  Clock::time_point last_shown_;
  bool line_open_ = false;
};

}  // namespace examples
