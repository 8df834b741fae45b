#include <tandem/base/half.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of binary16 bits, by the definition of the format.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? (fraction == 0 ? HUGE_VAL : NAN)
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, AllBitPatternsRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = Half::to_float(bits);
    const double expected = half_value(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(Half::to_float(Half::from_float(value)))) << i;
      EXPECT_EQ(Half::from_float(value) & 0x8000, bits & 0x8000) << i;
    } else {
      EXPECT_EQ(value, expected) << i;
      EXPECT_EQ(std::signbit(value), bits >= 0x8000) << i;
      EXPECT_EQ(Half::from_float(value), bits) << i;
    }
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  // For all neighbours: the midpoint rounds to even, the floats next to it to the nearer neighbour.
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<uint16_t>(i);
    const auto high = static_cast<uint16_t>(i + 1);
    const auto even = static_cast<uint16_t>(i % 2 == 0 ? i : i + 1);
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);
    ASSERT_EQ(Half::from_float(middle), even) << i;
    ASSERT_EQ(Half::from_float(-middle), even | 0x8000) << i;
    ASSERT_EQ(Half::from_float(std::nextafter(middle, 0.0f)), low) << i;
    ASSERT_EQ(Half::from_float(std::nextafter(middle, kInfinity)), high) << i;
    ASSERT_EQ(Half(double{middle}).bits, even) << i;
    ASSERT_EQ(Half(-std::nextafter(double{middle}, 0.0)).bits, low | 0x8000) << i;
    ASSERT_EQ(Half(std::nextafter(double{middle}, HUGE_VAL)).bits, high) << i;
  }
}

TEST(Half, BoundaryValuesRoundCorrectly) {
  EXPECT_EQ(Half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Half(65519.99f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);  // halfway to 2^16, whose significand is even
  EXPECT_EQ(Half(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(Half(0x1p-25f).bits, 0);  // halfway to the smallest subnormal
  EXPECT_EQ(Half(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(Half(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(NAN))));
}

TEST(BFloat16, AllBitPatternsRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(i);
    const float wide = value;
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), i << 16);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide)))) << i;
    } else {
      EXPECT_EQ(BFloat16(wide).bits, i);
    }
  }
}

TEST(BFloat16, RoundsToNearestTiesToEven) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const uint32_t middle = i << 16 | 0x8000;
    const uint32_t even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle)).bits, even);
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle - 1)).bits, i);
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle + 1)).bits, i + 1);
    ASSERT_EQ(BFloat16(-std::bit_cast<float>(middle)).bits, even | 0x8000);
    const double exact = std::bit_cast<float>(middle);
    ASSERT_EQ(BFloat16(exact).bits, even);
    ASSERT_EQ(BFloat16(std::nextafter(exact, 0.0)).bits, i);
    ASSERT_EQ(BFloat16(-std::nextafter(exact, HUGE_VAL)).bits, (i + 1) | 0x8000);
  }
  for (int e = 9; e < 63; ++e) {
    const int64_t low = int64_t{1} << e, high = low + (low >> 7), middle = low + (low >> 8);
    for (const int64_t sign : {1, -1}) {
      ASSERT_EQ(BFloat16(sign * middle), static_cast<float>(sign * low)) << e;
      ASSERT_EQ(BFloat16(sign * (middle - 1)), static_cast<float>(sign * low)) << e;
      ASSERT_EQ(BFloat16(sign * (middle + 1)), static_cast<float>(sign * high)) << e;
    }
  }
  EXPECT_EQ(BFloat16(std::numeric_limits<int64_t>::max()), 0x1p63f);
  EXPECT_EQ(BFloat16((uint64_t{257} << 55) + 1), 0x1.02p63f);
  EXPECT_EQ(BFloat16(uint64_t{257} << 55), 0x1p63f);
  EXPECT_EQ(BFloat16(uint32_t{257} << 23 | 1), 0x1.02p31f);
  EXPECT_EQ(Half(uint8_t{255}), 255.0f);
  EXPECT_EQ(BFloat16(1e300).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-1e-300).bits, 0x8000);
  EXPECT_TRUE(std::isnan(BFloat16(static_cast<double>(NAN))));
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(BFloat16, NanWithLowPayloadStaysNan) {
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0xffffffffu)))));
}

}}  // namespace tandem
