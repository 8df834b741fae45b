#include <gtest/gtest.h>

#include <tandem/base/log.h>

namespace tandem { namespace {

TEST(LogLevel, InvalidValueErrorListsAcceptedValues) {
  try {
    log(LogLevel::kError, "lost");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "TANDEM_LOG: 'loud' is not one of off, error, warning, info, debug");
  }
}

}}  // namespace tandem
