#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

using Numbers = std::vector<int64_t>;

Tensor here(const NestedList& values) { return tensor(values).to(test_device()); }

TEST(Math, SubnormalResultsOfErfcAreKept) {
  EXPECT_FLOAT_EQ(erfc(tensor({9.5})).item(), static_cast<float>(std::erfc(9.5)));
}

TEST(Math, LargeAnglesAreExactAndIndependentOfNeighbors) {
  for (const float angle : {1e9f, 3e12f, 1e20f, 3e38f}) {
    const Tensor mixed = tensor({0.5f, angle, -angle}).to(test_device());
    const Values sines = sin(mixed).to_vector<double>(), cosines = cos(mixed).to_vector<double>();
    EXPECT_NEAR(sines[1], std::sin(static_cast<double>(angle)), 2e-7) << angle;
    EXPECT_NEAR(sines[2], -std::sin(static_cast<double>(angle)), 2e-7) << angle;
    EXPECT_NEAR(cosines[1], std::cos(static_cast<double>(angle)), 2e-7) << angle;
    EXPECT_EQ(sines[0], sin(tensor({0.5f}).to(test_device())).item());
  }
}

TEST(Math, RoundingOfTiesAndDecimals) {
  const Tensor x = tensor({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5}).to(test_device());
  EXPECT_EQ(round(x).to_vector<double>(), (Values{-2, -2, 0, 0, 2, 2}));
  EXPECT_EQ(ceil(x).to_vector<double>(), (Values{-2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(trunc(x).to_vector<double>(), (Values{-2, -1, 0, 0, 1, 2}));
  EXPECT_EQ(frac(x).to_vector<double>(), (Values{-0.5, -0.5, -0.5, 0.5, 0.5, 0.5}));
  EXPECT_TRUE(close(round(tensor({1234.567, -0.05}), 2), {{2}, {1234.57, -0.05}}, 1e-6));
  EXPECT_EQ(round(tensor({1234.567}), -2).item(), 1200);
  EXPECT_ERROR(DTypeError, floor(tensor({true})), "floor: bool is not accepted\n  input  cpu  bool [1]");
}

TEST(Math, IntegerPowWrapsAroundAndFloatExponentPromotes) {
  EXPECT_EQ(pow(here({-3, 0, 2, 7}), 3).to_vector<int64_t>(), (Numbers{-27, 0, 8, 343}));
  EXPECT_EQ(pow(here({-3, 0, 2}), 0).to_vector<int64_t>(), (Numbers{1, 1, 1}));
  EXPECT_EQ(pow(full({1}, 3, {kUInt8, test_device()}), 6).item<int64_t>(), 729 % 256);
  EXPECT_EQ(pow(full({1}, -3, {kInt8, test_device()}), 5).item<int64_t>(), 256 - 243);
  EXPECT_EQ(pow(full({1}, -3, {kInt16, test_device()}), full({1}, 9, {kInt16, test_device()})).item<int64_t>(), -19683);
  EXPECT_EQ(pow(full({1}, -2, {kInt32, test_device()}), 31).item<int64_t>(), INT32_MIN);
  EXPECT_EQ(pow(here({2}), 62).item<int64_t>(), int64_t{1} << 62);
  EXPECT_EQ(pow(here({4}), 0.5).dtype(), kFloat32);
  EXPECT_EQ(pow(here({4}), 0.5).item(), 2);
  EXPECT_EQ(pow(here({3, 1, -1, -1, 0, 2, -2}), here({4, -5, -5, -4, -1, -1, 3})).to_vector<int64_t>(),
            (Numbers{81, 1, -1, 1, 0, 0, -8}));
  EXPECT_EQ(pow(full({1}, 255, {kUInt8, test_device()}), full({1}, 3, {kUInt8, test_device()})).item<int64_t>(), 255);
}

TEST(Math, PowOfANumberPromotesAsPyTorchAndHandlesZeroBases) {
  EXPECT_EQ(pow(2, here({3, 0, -1})).to_vector<int64_t>(), (Numbers{8, 1, 0}));
  EXPECT_EQ(pow(-2, full({1}, 7, {kInt8, test_device()})).to_vector<int64_t>(), (Numbers{-128}));
  EXPECT_EQ(pow(3, here({true, false})).to_vector<int64_t>(), (Numbers{3, 1}));
  EXPECT_EQ(pow(true, here({2.0})).dtype(), kFloat32);
  EXPECT_EQ(pow(0.5, here({2})).to_vector<double>(), (Values{0.25}));
  EXPECT_EQ(pow(10000, full({1}, 0.5, {kFloat16, test_device()})).dtype(), kFloat16);
  EXPECT_EQ(pow(0.5, full({}, 3, {kFloat64, test_device()})).dtype(), kFloat64);
  Tensor e = here({0.0, 2.0, -1.0}).requires_grad_();
  pow(0, e).backward(full({3}, 2, {kFloat32, test_device()}));
  EXPECT_EQ(e.grad().to_vector<double>(), (Values{0, 0, -INFINITY}));
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(pow(10000, full({}, 1, {kBFloat16, test_device()})).item(), 10000);  // not rounded to bfloat16
}

TEST(Math, PowSavesOutputOnlyForExponentGradient) {
  const auto holders = [](const Tensor& x) { return x.storage()->use_count(); };
  Tensor x = random_tensor({3}, 1, kFloat32, 1, 2).requires_grad_();
  Tensor e = random_tensor({3}, 2);
  const uint32_t alone = holders(pow(x, e));
  e.requires_grad_();
  EXPECT_EQ(holders(pow(x, e)), alone + 1);
}

TEST(Math, ClampOfIntegers) {
  EXPECT_EQ(clamp(here({-5, 0, 9}), -1, 3).to_vector<int64_t>(), (Numbers{-1, 0, 3}));
  EXPECT_EQ(clamp(full({2}, 7, {kUInt8, test_device()}), 9).to_vector<int64_t>(), (Numbers{9, 9}));
  EXPECT_EQ(clamp(full({2}, 200, {kUInt8, test_device()}), -1, 300).to_vector<int64_t>(), (Numbers{200, 200}));
  EXPECT_EQ(clamp(full({2}, 200, {kUInt8, test_device()}), 300).to_vector<int64_t>(), (Numbers{255, 255}));
  EXPECT_EQ(clamp(here({-5, 0, 9}), 0.5).dtype(), kFloat32);
  EXPECT_EQ(clamp(here({3, 0, 200}).to(kInt32), 2, 300).to_vector<int64_t>(), (Numbers{3, 2, 200}));
}

TEST(Math, ClampGradientIsZeroAtInfiniteBounds) {
  const Tensor x = here({-INFINITY, 0.0, INFINITY, NAN}).requires_grad_();
  clamp(x, -INFINITY, INFINITY).backward(full({4}, 3, {kFloat32, test_device()}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 3, 0, 0}));
}

TEST(Math, DenseInputMemoryOrderIsPreserved) {
  const Tensor x = random_tensor({2, 3, 5}, 1, kFloat32, 1, 2).transpose(0, 2);
  for (const Tensor& y : {sqrt(x), rsqrt(x), pow(x, 1.5), pow(x, x), clamp(x, 1.25)})
    EXPECT_EQ(y.strides(), x.strides());
}

TEST(Math, InvalidArgumentsAreNamedInErrors) {
  const Tensor flags = tensor({true, false});
  EXPECT_ERROR(DTypeError, pow(flags, 2), "pow: bool is not accepted\n  input  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, pow(flags, flags), "pow: bool is not accepted\n  input  cpu  bool [2]");
  EXPECT_ERROR(ValueError, pow(tensor({1, 2}), -2),
               "pow: an integer to the power -2 is not an integer\n"
               "  input  cpu  int64 [2]\n"
               "  make the exponent a floating number");
  EXPECT_ERROR(ShapeError, pow(zeros({2, 3}), zeros({4})),
               "pow: shapes do not broadcast\n"
               "  input     cpu  float32 [2, 3]\n"
               "  exponent  cpu  float32 [4]");
  EXPECT_ERROR(DTypeError, clamp(flags, 0), "clamp: bool is not accepted\n  input  cpu  bool [2]");
  EXPECT_ERROR(ValueError, clamp(zeros({2}), std::nullopt, std::nullopt),
               "clamp: at least one of min and max is needed");
  EXPECT_ERROR(ValueError, clamp(zeros({2}), NAN), "clamp: min is NaN");
  EXPECT_ERROR(ValueError, clamp(zeros({2}), {}, NAN), "clamp: max is NaN");
}

}}  // namespace tandem::testing
