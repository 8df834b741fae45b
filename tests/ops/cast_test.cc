#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

TEST(Cast, GradientOfCastHasTheDTypeOfTheInput) {
  Tensor x = tensor({1.0, 2.5});
  x.requires_grad_();
  const Tensor y = x.to(kFloat64);
  EXPECT_EQ(y.dtype(), kFloat64);
  y.backward(full({2}, 0.75, {kFloat64}));
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0.75, 0.75}));
  EXPECT_TRUE(x.to(kFloat32).is_same(x));
  EXPECT_FALSE(x.to(kInt64).requires_grad());
  EXPECT_EQ(x.to(kInt64).to_vector<double>(), (Values{1, 2}));
}

TEST(Cast, FloatingToIntegerTruncatesAndSaturates) {
  const std::vector<double> values = {2.75, -2.75, 1e30, -1e30, INFINITY, -INFINITY, NAN};
  const std::vector<std::pair<DType, std::pair<int64_t, int64_t>>> integers = {{kUInt8, {0, 255}},
                                                                               {kInt8, {-128, 127}},
                                                                               {kInt16, {INT16_MIN, INT16_MAX}},
                                                                               {kInt32, {INT32_MIN, INT32_MAX}},
                                                                               {kInt64, {INT64_MIN, INT64_MAX}}};
  for (const DType from : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = from_vector<double>(values, {7}).to(from);
    for (const auto& [dtype, range] : integers) {
      const auto [lowest, highest] = range;
      EXPECT_EQ(x.to(dtype).to_vector<int64_t>(),
                (std::vector<int64_t>{2, std::max<int64_t>(-2, lowest), highest, lowest, highest, lowest, 0}))
          << from << " to " << dtype;
    }
    EXPECT_EQ(x.to(kBool).to_vector<bool>(), std::vector<bool>(7, true)) << from;
  }
}

TEST(Cast, PoliciesSelectDTypeUnderAutocast) {
  const Tensor single = ones({2});
  const Tensor bf16 = ones({2}, {kBFloat16});
  const Tensor f64 = ones({2}, {kFloat64});
  const Tensor ints = ones({2}, {kInt64});
  const auto cast = [](CastPolicy policy, const Tensor& a, const Tensor& b) {
    Tensor x = a;
    Tensor y = b;
    Tensor undefined;
    cast_for(policy, {&x, &y, &undefined});
    EXPECT_FALSE(undefined.defined());
    return std::pair(x.dtype(), y.dtype());
  };
  EXPECT_EQ(cast(CastPolicy::kLowPrecision, single, bf16), std::pair(kFloat32, kBFloat16));
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(cast(CastPolicy::kLowPrecision, single, ints), std::pair(kBFloat16, kInt64));
  EXPECT_EQ(cast(CastPolicy::kLowPrecision, f64, bf16), std::pair(kFloat64, kBFloat16));
  EXPECT_EQ(cast(CastPolicy::kFloat32, bf16, f64), std::pair(kFloat32, kFloat64));
  EXPECT_EQ(cast(CastPolicy::kWidest, bf16, single), std::pair(kFloat32, kFloat32));
  EXPECT_EQ(cast(CastPolicy::kWidest, bf16, bf16), std::pair(kBFloat16, kBFloat16));
  EXPECT_EQ(cast(CastPolicy::kWidest, ints, bf16), std::pair(kInt64, kBFloat16));
  EXPECT_EQ(exp(bf16).dtype(), kFloat32);
  EXPECT_EQ(sum(bf16).dtype(), kFloat32);
  EXPECT_EQ(add(bf16, bf16).dtype(), kBFloat16);
  EXPECT_EQ(add(bf16, ones({}, {kFloat32})).dtype(), kFloat32);
  DType elsewhere = kInt64;
  std::thread([&] { elsewhere = exp(bf16).dtype(); }).join();
  EXPECT_EQ(elsewhere, kBFloat16) << "autocast belongs to its thread";
}

TEST(Cast, AutocastScopesNestAndEnd) {
  const Tensor x = ones({2});
  const auto lowered = [&] {
    Tensor y = x;
    cast_for(CastPolicy::kLowPrecision, {&y});
    return y.dtype();
  };
  {
    const Autocast outer(kBFloat16);
    {
      const Autocast inner(kFloat16);
      EXPECT_EQ(lowered(), kFloat16);
    }
    EXPECT_EQ(lowered(), kBFloat16);
  }
  EXPECT_EQ(lowered(), kFloat32);
  EXPECT_EQ(error_text<DTypeError>([] { const Autocast wrong(kFloat64); }),
            "Autocast: dtype must be float16 or bfloat16, not float64");
}

TEST(Cast, GradientsHaveTheParameterDType) {
  Tensor x = random_tensor({3}, 1);
  x.requires_grad_();
  const Autocast autocast(kBFloat16);
  Tensor y = x;
  cast_for(CastPolicy::kLowPrecision, {&y});
  sum(y * 2).backward();
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 2, 2}));
}

TEST(Cast, UndefinedInputIsRejected) {
  EXPECT_ERROR(StateError, to(Tensor(), kFloat64), "to: input is undefined\n  input  undefined");
}

}}  // namespace tandem::testing
