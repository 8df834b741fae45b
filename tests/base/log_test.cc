#include <tandem/base/log.h>

#include <gmock/gmock.h>

#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

std::string captured(LogLevel level, const char* text) {
  ::testing::internal::CaptureStderr();
  log(level, text, " ", 33);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, DefaultLevelEnablesWarningsAndErrors) {
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  EXPECT_TRUE(log_enabled(LogLevel::kWarning));
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
  EXPECT_EQ(captured(LogLevel::kInfo, "quiet"), "");
}

TEST(Log, LineContainsTimeLevelAndText) {
  EXPECT_THAT(captured(LogLevel::kWarning, "slow disk"),
              ::testing::MatchesRegex("[0-9:]+\\.[0-9]+ warning slow disk 33\n"));
}

TEST(Log, LineContainsRankInMultiRankWorld) {
  RankContext context;
  context.rank = 1;
  context.world_size = 4;
  RankContext::Use use(context);
  EXPECT_THAT(captured(LogLevel::kError, "lost {}"),
              ::testing::MatchesRegex("[0-9:]+\\.[0-9]+ error \\[rank 1/4\\] lost \\{\\} 33\n"));
}

}}  // namespace tandem
