// Functions of two and three tensors: ties, signs, integers, special values and errors.
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;
using Numbers = std::vector<int64_t>;

Tensor here(const Tensor& x) { return x.to(test_device()); }
Values values(const Tensor& x) { return x.to_vector<double>(); }
Numbers numbers(const Tensor& x) { return x.to_vector<int64_t>(); }

TEST(Division, IntegersAreRoundedBySign) {
  const Tensor a = here(tensor({7, -7, 7, -7, 6, 5, INT32_MIN})), b = here(tensor({2, 2, -2, -2, -3, 0, -1}));
  EXPECT_EQ(numbers(div(a, b, RoundingMode::kTrunc)), (Numbers{3, -3, -3, 3, -2, 0, -int64_t{INT32_MIN}}));
  EXPECT_EQ(numbers(floor_divide(a, b)), (Numbers{3, -4, -4, 3, -2, 0, -int64_t{INT32_MIN}}));
  EXPECT_EQ(numbers(fmod(a, b)), (Numbers{1, -1, 1, -1, 0, 0, 0}));
  EXPECT_EQ(numbers(remainder(a, b)), (Numbers{1, 1, -1, -1, 0, 0, 0}));
  EXPECT_EQ(numbers(remainder(a, 4)), (Numbers{3, 1, 3, 1, 2, 1, 0}));
  EXPECT_EQ(numbers(floor_divide(a.to(kInt32), -1).slice(0, 6, 7)), (Numbers{INT32_MIN}));
  EXPECT_EQ(numbers(floor_divide(full({1}, 200, {kUInt8}), 3)), (Numbers{66}));
  EXPECT_EQ(floor_divide(a, 2.5).dtype(), kFloat32);
}

TEST(Bitwise, FloatingNumbersAreRejected) {
  EXPECT_ERROR(DTypeError, bitwise_and(ones({2}), 1), "bitwise_and: integers or bools are needed, got float32");
  EXPECT_ERROR(DTypeError, tensor({1}) | ones({1}), "bitwise_or: integers or bools are needed, got float32");
  EXPECT_ERROR(DTypeError, ~ones({1}), "bitwise_not: integers or bools are needed, got float32");
}

TEST(Logaddexp, HandlesLargeNumbers) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor a = here(tensor({1000.0}).to(dtype));
    EXPECT_NEAR(logaddexp(a, a).item(), 1000 + std::log(2), 1e-4);
  }
}

TEST(Clamp, TensorBoundsPropagateNaNAndMaxWins) {
  Tensor x = here(tensor({-3.0, 0.0, 3.0, NAN, 1.0, 1.0})).requires_grad_();
  Tensor low = here(tensor({-1.0, -1.0, 2.0, -1.0, NAN, 1.0})).requires_grad_();
  Tensor high = here(tensor({1.0, 1.0, 1.0, 1.0, 1.0, 2.0})).requires_grad_();
  const Tensor result = clamp(x, low, high);
  const Values of = values(result);
  EXPECT_EQ((Values{of[0], of[1], of[2], of[5]}), (Values{-1, 0, 1, 1}));
  EXPECT_TRUE(std::isnan(of[3]) && std::isnan(of[4]));
  result.backward(ones_like(result));
  EXPECT_EQ(values(x.grad()), (Values{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(low.grad()), (Values{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(high.grad()), (Values{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(values(clamp(x.detach(), {}, high.detach()))[2], 1);
}

TEST(Lerp, IsExactAtBothEnds) {
  const Tensor a = here(tensor({0.1, 1e8})), b = here(tensor({0.7, 1.0}));
  EXPECT_EQ(values(lerp(a, b, 0)), values(a));
  EXPECT_EQ(values(lerp(a, b, 1)), values(b));
  EXPECT_EQ(values(lerp(a, b, ones_like(a))), values(b));
  EXPECT_EQ(error_text<DTypeError>([] { static_cast<void>(lerp(tensor({1}), tensor({2}), 0.5)); }).substr(0, 5),
            "lerp:");
}

TEST(Addcmul, AcceptsIntegersAndRejectsFloatingValues) {
  const Tensor a = here(tensor({1, 2})), b = here(tensor({3, 4})), c = here(tensor({5, -6}));
  EXPECT_EQ(numbers(addcmul(a, b, c, 2)), (Numbers{31, -46}));
  EXPECT_ERROR(DTypeError, addcmul(a, b, c, 0.5), "addcmul: value is the floating number 0.5, but the result is int64");
  EXPECT_EQ(error_text<DTypeError>([&] { static_cast<void>(addcdiv(a, b, c)); }).substr(0, 8), "addcdiv:");
}

}}  // namespace tandem::testing
