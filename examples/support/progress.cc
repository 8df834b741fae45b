#include <tandem/examples/support/progress.h>

#include <unistd.h>

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
  const auto s = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(s / 60), static_cast<int>(s % 60));
  return text;
}

}  // namespace

Progress::Progress(bool enabled, int64_t total_steps, int64_t items_per_step)
    : enabled_(enabled),
      redraw_(can_redraw()),
      total_steps_(total_steps),
      items_per_step_(items_per_step),
      start_(Clock::now()),
      last_shown_(start_) {}

Progress::~Progress() { clear_line(); }

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
  if (steps_ == 1) {
    start_ = now;
    return;
  }
  const auto interval = redraw_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - last_shown_ < interval && steps_ != total_steps_) return;
  last_shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(steps_ - 1) / seconds;
  char text[160];
  std::snprintf(text, sizeof text, "epoch %lld  step %lld/%lld  loss %.4f  %.0f images/s  %s left",
                static_cast<long long>(epoch + 1), static_cast<long long>(steps_), static_cast<long long>(total_steps_),
                mean_loss_, rate * static_cast<double>(items_per_step_),
                as_time(static_cast<double>(total_steps_ - steps_) / rate).c_str());
  if (redraw_) {
    std::printf("\r\x1b[K%s", text);
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
}

}  // namespace examples
