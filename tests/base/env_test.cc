#include <tandem/base/env.h>

#include <stdlib.h>

#include <tandem/tests/support/test.h>

namespace tandem { namespace {

constexpr char kName[] = "TANDEM_ENV_TEST";

TEST(Env, UnsetAndEmptyVariablesGiveNullopt) {
  unsetenv(kName);
  EXPECT_EQ(env_string(kName), std::nullopt);
  EXPECT_EQ(env_int(kName), std::nullopt);
  setenv(kName, "", 1);
  EXPECT_EQ(env_string(kName), std::nullopt);
  EXPECT_EQ(env_int(kName), std::nullopt);
}

TEST(Env, FullInt64RangeIsParsed) {
  for (int64_t value : {int64_t{0}, int64_t{-7}, INT64_MAX, INT64_MIN}) {
    setenv(kName, std::to_string(value).c_str(), 1);
    EXPECT_EQ(env_int(kName), value);
  }
}

TEST(Env, InvalidIntegerErrorQuotesTheText) {
  for (const char* text : {"4 ", " 4", "4x", "0x10", "1e3", "9223372036854775808", "four"}) {
    setenv(kName, text, 1);
    EXPECT_EQ(env_string(kName), text);
    EXPECT_ERROR(ValueError, env_int(kName), "TANDEM_ENV_TEST: '" + std::string(text) + "' is not an integer");
  }
}

}}  // namespace tandem
