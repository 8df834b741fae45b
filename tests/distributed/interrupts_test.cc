#include <tandem/distributed/launch/interrupts.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>

/// Replaces the system's function by one that fails.
extern "C" int timer_settime(timer_t, int, const itimerspec*, itimerspec*) noexcept {
  errno = EINVAL;
  return -1;
}

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TEST(ShutdownTimeout, IsTenSecondsByDefaultAndZeroMeansNoLimit) {
  EXPECT_EQ(shutdown_timeout(), std::chrono::seconds(10));
  setenv("TANDEM_SHUTDOWN_TIMEOUT_S", "0", 1);
  EXPECT_EQ(shutdown_timeout(), kNoLimit);
  unsetenv("TANDEM_SHUTDOWN_TIMEOUT_S");
}

TEST(InterruptHandlers, SignalHandlerPreservesErrno) {
  const InterruptHandlers handlers(true);
  errno = ERANGE;
  raise(SIGTERM);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(interrupt_signal(), SIGTERM);
}

}}}}  // namespace tandem::v0::distributed
