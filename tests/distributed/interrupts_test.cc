#include <tandem/distributed/launch/interrupts.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>

/// Replaces the system's function by one that fails.
extern "C" int timer_settime(timer_t, int, const itimerspec*, itimerspec*) noexcept {
  errno = EINVAL;
  return -1;
}

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TEST(ShutdownTimeout, IsTenSecondsByDefault) { EXPECT_EQ(shutdown_timeout(), std::chrono::seconds(10)); }

TEST(InterruptHandlers, SignalHandlerPreservesErrno) {
  const InterruptHandlers handlers(true);
  errno = ERANGE;
  raise(SIGTERM);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(interrupt_signal(), SIGTERM);
}

}}}}  // namespace tandem::v0::distributed
