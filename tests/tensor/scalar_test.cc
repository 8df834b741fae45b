#include <tandem/tensor/scalar.h>

#include <gtest/gtest.h>

namespace tandem { namespace {

TEST(Scalar, KindIsKeptAsWidestDType) {
  EXPECT_EQ(Scalar(2.5).dtype(), kFloat64);
  EXPECT_EQ(Scalar(2.5f).dtype(), kFloat64);
  EXPECT_EQ(Scalar(3).dtype(), kInt64);
  EXPECT_EQ(Scalar(uint8_t{3}).dtype(), kInt64);
  EXPECT_EQ(Scalar(true).dtype(), kBool);
}

TEST(Scalar, ValuesConvertBetweenKinds) {
  EXPECT_EQ(Scalar(-2.75).to<int32_t>(), -2);
  EXPECT_EQ(Scalar(-2.75).to<float>(), -2.75f);
  EXPECT_EQ(static_cast<float>(Scalar(0.1).to<Half>()), 0.0999755859375f);
  EXPECT_EQ(static_cast<float>(Scalar(257).to<BFloat16>()), 256.0f);
  EXPECT_EQ(Scalar(1 + 0x1p-8 + 0x1p-40).to<BFloat16>(), 1 + 0x1p-7f);
  EXPECT_EQ(Scalar((int64_t{1} << 62) + (int64_t{1} << 54) + 1).to<BFloat16>(), 0x1.02p62f);
  EXPECT_TRUE(Scalar(0.25).to<bool>());
  EXPECT_FALSE(Scalar(0).to<bool>());
  EXPECT_EQ(Scalar(true).to<double>(), 1.0);
  EXPECT_EQ(Scalar((int64_t{1} << 53) + 1).to<int64_t>(), (int64_t{1} << 53) + 1);
}

}}  // namespace tandem
