#include <tandem/examples/support/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace examples {

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

/// Columns of the terminal: a longer line could not be redrawn.
size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80u;
}

}  // namespace

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string count(int64_t n, const std::string& noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

Progress::Progress(bool enabled, int64_t total_steps, int64_t items_per_step)
    : enabled_(enabled),
      redraw_(can_redraw()),
      total_steps_(total_steps),
      items_per_step_(items_per_step),
      last_(Clock::now()),
      last_shown_(last_) {}

Progress::~Progress() {
  if (enabled_) clear_line();
}

void Progress::clear_line() {
  if (line_open_) std::printf("\r\x1b[K");
  std::fflush(stdout);
  line_open_ = false;
}

void Progress::step(int64_t epoch, double loss) {
  ++steps_;
  mean_loss_ = steps_ == 1 ? loss : 0.95 * mean_loss_ + 0.05 * loss;
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (steps_ > 1) {
    ++timed_steps_;
    seconds_ += std::chrono::duration<double>(now - last_).count();
  }
  last_ = now;
  const auto interval = redraw_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (timed_steps_ == 0 || (now - last_shown_ < interval && steps_ != total_steps_)) return;
  last_shown_ = now;
  show(epoch);
}

void Progress::show(int64_t epoch) {
  const double rate = static_cast<double>(timed_steps_) / seconds_;
  char text[160];
  std::snprintf(text, sizeof text, "epoch %lld  step %lld/%lld  loss %.4f  %.0f images/s  %s left",
                static_cast<long long>(epoch + 1), static_cast<long long>(steps_), static_cast<long long>(total_steps_),
                mean_loss_, rate * static_cast<double>(items_per_step_),
                as_time(static_cast<double>(total_steps_ - steps_) / rate).c_str());
  if (redraw_) {
    constexpr size_t kBarWidth = 20;
    const auto done = static_cast<size_t>(steps_ * static_cast<int64_t>(kBarWidth) / total_steps_);
    std::string line = "[";
    line.append(done, '=').append(kBarWidth - done, ' ').append("]  ").append(text);
    line.resize(std::min(line.size(), terminal_width() - 1));
    std::printf("\r\x1b[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::printf("%s\n", text);
  }
  std::fflush(stdout);
}

void Progress::note(const std::string& text) {
  if (!enabled_) return;
  clear_line();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  last_ = Clock::now();
}

}  // namespace examples
