#include <tandem/distributed/launch/interrupts.h>

#include <unistd.h>
#include <ctime>

#include <atomic>
#include <cerrno>

#include <tandem/base/env.h>
#include <tandem/distributed/launch/rank_environment.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// State of the signal handler, global because handlers take no user argument.
struct InterruptState {
  std::atomic<int> signal{0};
  std::atomic<bool> enforce{false};
  timer_t timer = {};  // delivers SIGTERM, which counts as the second signal
  itimerspec shutdown_timeout = {};
};
constinit InterruptState state;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void handle_interrupt(int signal) {
  const int error = errno;  // restored for the interrupted code
  int expected = 0;
  if (state.signal.compare_exchange_strong(expected, signal)) {
    if (state.enforce.load()) {
      timer_settime(state.timer, 0, &state.shutdown_timeout, nullptr);
    }
  } else if (state.enforce.load()) {
    _exit(128 + state.signal.load());
  }
  errno = error;
}

}  // namespace

std::chrono::milliseconds shutdown_timeout() {
  const char* const variable = "TANDEM_SHUTDOWN_TIMEOUT_S";
  const auto text = env_string(variable);
  const auto timeout = text ? parse_seconds(variable, *text) : std::chrono::seconds(10);
  return timeout.count() > 0 ? timeout : kNoLimit;
}

int interrupt_signal() { return state.signal.load(std::memory_order_relaxed); }

InterruptHandlers::InterruptHandlers(bool enforce) {
  state.signal = 0;
  const auto timeout = shutdown_timeout();
  state.shutdown_timeout.it_value = {timeout.count() / 1000, timeout.count() % 1000 * 1000000};
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGTERM;
  state.enforce = enforce && timer_create(CLOCK_MONOTONIC, &event, &state.timer) == 0;
  struct sigaction action = {};
  action.sa_handler = handle_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

InterruptHandlers::~InterruptHandlers() {
  if (state.enforce.exchange(false)) timer_delete(state.timer);
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  state.signal = 0;
}

}}}  // namespace tandem::v0::distributed
