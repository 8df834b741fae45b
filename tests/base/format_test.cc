#include <tandem/base/format.h>

#include <cstdio>

#include <tandem/tests/support/program_locale.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(FormatBytes, ChoosesUnitBySize) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1 << 20), "1.0 MiB");
  EXPECT_EQ(format_bytes(25165824), "24.0 MiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(format_bytes(int64_t{5000} << 40), "5000.0 TiB");
}

TEST(FormatFixed, RoundsToDecimalPlaces) {
  EXPECT_EQ(format_fixed(0.125, 4), "0.1250");
  EXPECT_EQ(format_fixed(-2.675, 0), "-3");
  EXPECT_EQ(format_fixed(1e300, 2).size(), 304u);
}

TEST(FormatCount, AddsAnSUnlessOne) {
  EXPECT_EQ(format_count(1, "step"), "1 step");
  EXPECT_EQ(format_count(0, "step"), "0 steps");
  EXPECT_EQ(format_count(2, "step"), "2 steps");
}

TEST(FormatGeneral, WritesAsPrintfDoes) {
  for (const double value : {0.0, 0.125, -1234567.0, 1e20, 1e-7, 100000.0, 0.1, HUGE_VAL, -std::nan("")}) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g %.3e", value, value);
    EXPECT_EQ(format_general(value, 6) + " " + format_scientific(value, 3), text);
  }
  EXPECT_EQ(testing::error_text<ValueError>([] { format_fixed(1, 400); }),
            "format_fixed: the text of 1 with 400 digits is too long (limit 400 characters)");
}

TEST(ParseInteger, TakesNothingButAnInteger) {
  EXPECT_EQ(parse_integer("-1234567"), -1234567);
  for (const char* text : {"", "x", "1,234", "1 ", " 1", "+1", "1.5", "9223372036854775808"})
    EXPECT_FALSE(parse_integer(text)) << text;
}

TEST(Locale, DoesNotChangeTexts) {
  const testing::ProgramLocale locale;
  EXPECT_EQ(str(1234567, ' ', 1234.5, ' ', true), "1234567 1234.5 true");
  EXPECT_EQ(str(format_bytes(1536), format_fixed(1234.5, 2), format_count(1234, "step")), "1.5 KiB1234.501234 steps");
}

}}  // namespace tandem
