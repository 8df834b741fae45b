#include <tandem/base/math.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;

TEST(Math, CeilDivRoundsTowardPositiveInfinity) {
  EXPECT_EQ(td::ceil_div(int64_t{0}, 4), 0);
  EXPECT_EQ(td::ceil_div(int64_t{1}, 4), 1);
  EXPECT_EQ(td::ceil_div(int64_t{8}, 4), 2);
  EXPECT_EQ(td::ceil_div(int64_t{9}, 4), 3);
  EXPECT_EQ(td::ceil_div(int64_t{-1}, 4), 0);
  EXPECT_EQ(td::ceil_div(int64_t{-4}, 4), -1);
  EXPECT_EQ(td::ceil_div(int64_t{-5}, 4), -1);
}

TEST(Math, CeilDivOfLargestNumberDoesNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(td::ceil_div(kMax, 1), kMax);
  EXPECT_EQ(td::ceil_div(kMax, 2), kMax / 2 + 1);
}

TEST(Math, RoundUpReturnsNextMultiple) {
  EXPECT_EQ(td::round_up(int64_t{0}, 64), 0);
  EXPECT_EQ(td::round_up(int64_t{1}, 64), 64);
  EXPECT_EQ(td::round_up(int64_t{64}, 64), 64);
  EXPECT_EQ(td::round_up(size_t{65}, 64), size_t{128});
}
