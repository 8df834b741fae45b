#include <tandem/train/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/format.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

bool can_redraw() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::strcmp(term, "dumb") != 0;
}

std::string as_time(double seconds) {
  const auto s = std::lround(seconds);
  char text[32];
  std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(s / 60), static_cast<int>(s % 60));
  return text;
}

/// Columns of the terminal. A longer line would wrap and could not be redrawn.
size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80u;
}

}  // namespace

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      redraw_(can_redraw()),
      mean_losses_(options_.losses.size(), std::numeric_limits<double>::quiet_NaN()),
      last_(Clock::now()),
      last_shown_(last_) {}

Progress::~Progress() {
  if (options_.enabled) clear_line();
}

void Progress::clear_line() {
  if (line_open_) std::printf("\r\x1b[K");
  std::fflush(stdout);
  line_open_ = false;
}

std::string Progress::losses() const {
  std::string text;
  for (size_t i = 0; i < mean_losses_.size(); ++i) {
    text += str(i > 0 ? ", " : "", options_.losses[i], " ", format_fixed(mean_losses_[i], 4));
  }
  return text;
}

void Progress::step(const std::vector<double>& losses) {
  ++steps_;
  for (size_t i = 0; i < mean_losses_.size(); ++i) {
    mean_losses_[i] = started_ ? 0.95 * mean_losses_[i] + 0.05 * losses.at(i) : losses.at(i);
  }
  const Clock::time_point now = Clock::now();
  if (started_) {
    step_seconds_ = std::chrono::duration<double>(now - last_).count();
    seconds_ += step_seconds_;
    ++timed_steps_;
  }
  started_ = true;
  last_ = now;
  if (!options_.enabled) return;
  if (!redraw_ && options_.log_every > 0) {
    if (steps_ % options_.log_every == 0) show();
    return;
  }
  const auto interval = redraw_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (timed_steps_ == 0 || (now - last_shown_ < interval && steps_ - earlier_ != options_.total_steps)) return;
  last_shown_ = now;
  show();
}

void Progress::show() {
  const int64_t position = steps_ - earlier_;
  std::string line = str("epoch ", (position - 1) / options_.steps_per_epoch + 1, "  step ", steps_, "/",
                         options_.total_steps + earlier_, "  ", losses());
  if (timed_steps_ > 0) {
    const double rate = static_cast<double>(timed_steps_) / seconds_;
    line += str("  ", format_fixed(rate * static_cast<double>(options_.items_per_step), 0), " ", options_.items, "/s  ",
                as_time(static_cast<double>(options_.total_steps - position) / rate), " left");
  }
  if (redraw_) {
    constexpr size_t kBarWidth = 20;
    const auto done = static_cast<size_t>(position * static_cast<int64_t>(kBarWidth) / options_.total_steps);
    std::string bar = "[";
    bar.append(done, '=').append(kBarWidth - done, ' ').append("]  ");
    line = bar + line;
    line.resize(std::min(line.size(), terminal_width() - 1));
    std::printf("\r\x1b[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

void Progress::note(const std::string& text) {
  if (!options_.enabled) return;
  clear_line();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  last_ = Clock::now();
}

}}}  // namespace tandem::v0::train
