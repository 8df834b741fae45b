#include <gtest/gtest.h>

#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>

namespace tandem { namespace {

TEST(DebugLogLevel, EnablesAllLevelsOnRankZero) {
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
}

TEST(DebugLogLevel, OtherRanksLogOnlyWarningsAndErrors) {
  RankContext context;
  context.rank = 1;
  RankContext::Use use(context);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kWarning));
}

}}  // namespace tandem
