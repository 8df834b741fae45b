#include <tandem/base/log.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(LogLevel, InvalidValueErrorListsAcceptedValues) {
  EXPECT_ERROR(ValueError, log(LogLevel::kError, "lost"),
               "TANDEM_LOG: 'loud' is not one of off, error, warning, info, debug");
}

}}  // namespace tandem
