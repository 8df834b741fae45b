#include <tandem/base/format.h>

#include <gtest/gtest.h>

using tandem::format_bytes;

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

}  // namespace
