#include <tandem/base/format.h>

#include <gtest/gtest.h>

using tandem::format_bytes;
using tandem::format_count;
using tandem::format_fixed;

namespace {

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

}  // namespace
