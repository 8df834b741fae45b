// Progress of a training run on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace examples {

/// Shows loss, rate and time left: one line that is redrawn on a terminal, a plain line every few seconds otherwise (or where
/// NO_COLOR is set or TERM is "dumb").  Rank 0 owns one; other ranks' does nothing.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `total_steps` of `items_per_step` items over all ranks.
  Progress(bool enabled, int64_t total_steps, int64_t items_per_step);
  /// Ends a redrawn line.
  ~Progress();

  /// After each step.  Times count from the second step on: the first one also sets things up.
  void step(int64_t epoch, double loss);
  /// A line that stays.
  void note(const std::string& text);
  int64_t steps() const { return steps_; }

 private:
  void clear_line();

  bool enabled_;
  bool redraw_;
  int64_t total_steps_;
  int64_t items_per_step_;
  int64_t steps_ = 0;
  double mean_loss_ = 0;
  Clock::time_point start_;
  Clock::time_point last_shown_;
  bool line_open_ = false;
};

}  // namespace examples
