// Checks that the compiler gets the flags of tools/build/tandem.bzl.
#include <gtest/gtest.h>

namespace {

static_assert(__cplusplus >= 202002L, "C++20");

TEST(Toolchain, BaselineInstructionSetIsEnabled) {
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__FMA__)
  FAIL() << "the baseline is x86-64-v3";
#endif
#endif
}

// With -ffp-contract=off, a * b is rounded before c is added, although the instruction set has fused multiply-add.
TEST(Toolchain, MultiplyAndAddAreNotFused) {
  volatile double a = 1.0 + 0x1p-30;
  volatile double b = 1.0 - 0x1p-30;
  volatile double c = -1.0;
  const double x = a, y = b, z = c;
  EXPECT_EQ(x * y + z, 0.0) << "a fused multiply-add would give -2^-60";
}

}  // namespace
