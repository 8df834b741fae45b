#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

TEST(Elementwise, ContiguousInputIsReturnedItself) {
  const Tensor x = random_tensor({2, 3}, 1);
  EXPECT_TRUE(x.contiguous().is_same(x));
  EXPECT_NE(x.clone().data_ptr(), x.data_ptr());
  const Tensor sliced = make_tensor(random_dense({2, 3}, 1), kFloat32, Layout::kSliced);
  EXPECT_FALSE(sliced.is_contiguous());
  EXPECT_TRUE(sliced.contiguous().is_contiguous());
}

TEST(Elementwise, IntegerOverflowWrapsAround) {
  const Tensor big = full({3}, INT64_MAX, {kInt64});
  EXPECT_EQ((big + 1).to_vector<int64_t>(), (std::vector<int64_t>{INT64_MIN, INT64_MIN, INT64_MIN}));
  EXPECT_EQ((big * 2).to_vector<int64_t>(), (std::vector<int64_t>{-2, -2, -2}));
  EXPECT_EQ(neg(full({1}, INT32_MIN, {kInt32})).item<int64_t>(), INT32_MIN);
  EXPECT_EQ((full({1}, 250, {kUInt8}) + full({1}, 10, {kUInt8})).item<int64_t>(), 4);
  EXPECT_EQ(relu(tensor({-3, 0, 5})).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 5}));
  EXPECT_EQ((tensor({true, false}) + tensor({true, false})).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
}

/// Distance between adjacent floats at abs(x).
double ulp(double x) {
  const float f = static_cast<float>(std::abs(x));
  if (f < 0x1p-126f) return 0x1p-149;
  return std::nextafter(f, INFINITY) - static_cast<double>(f);
}

TEST(Elementwise, ExpIsWithin08Ulps) {
  double worst = 0;
  for (double x = -103.5; x < 88.7; x += 0.00037) {
    const float argument = static_cast<float>(x);
    const double want = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::abs(exp_element(argument) - want) / ulp(want));
  }
  for (float x = 0x1p-149f; x < 0.69f; x = x * 1.0009f + 0x1p-149f) {
    worst = std::max(worst, std::abs(exp_element(x) - std::exp(static_cast<double>(x))) / 0x1p-23);
    worst = std::max(worst, std::abs(exp_element(-x) - std::exp(-static_cast<double>(x))) / 0x1p-24);
  }
  EXPECT_LE(worst, 0.8);  // subnormal numbers are rounded twice
  EXPECT_EQ(exp_element(0.0f), 1);
  EXPECT_EQ(exp_element(INFINITY), INFINITY);
  EXPECT_EQ(exp_element(88.8f), INFINITY);
  EXPECT_EQ(exp_element(-INFINITY), 0);
  EXPECT_EQ(exp_element(-1000.0f), 0);
  EXPECT_TRUE(std::isnan(exp_element(NAN)));
}

TEST(Elementwise, LogIsWithin06Ulps) {
  double worst = 0;
  for (float x = 0x1p-149f; x < 3e38f; x = x * 1.00013f + 0x1p-149f) {
    const double want = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(log_element(x) - want) / ulp(want));
  }
  for (int i = -100000; i < 100000; ++i) {  // close to 1, where the result is small
    const float x = 1 + static_cast<float>(i) * 0x1p-23f;
    const double want = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(log_element(x) - want) / ulp(want));
  }
  EXPECT_LE(worst, 0.6);
  EXPECT_EQ(log_element(1.0f), 0);
  EXPECT_EQ(log_element(0.0f), -INFINITY);
  EXPECT_EQ(log_element(-0.0f), -INFINITY);
  EXPECT_EQ(log_element(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(log_element(-1.0f)));
  EXPECT_TRUE(std::isnan(log_element(-0x1p-149f)));
  EXPECT_TRUE(std::isnan(log_element(-INFINITY)));
  EXPECT_TRUE(std::isnan(log_element(NAN)));
}

TEST(Elementwise, ElementResultIsIndependentOfNeighbors) {
  for (DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16}) {
    const Tensor x = random_tensor({37}, 3, dtype, 0.1, 5);
    const Tensor y = exp(x);
    const Tensor z = log(x);
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(exp(x.select(0, i)).item(), y.select(0, i).item()) << dtype;
      EXPECT_EQ(log(x.select(0, i)).item(), z.select(0, i).item()) << dtype;
    }
  }
}

TEST(Elementwise, ForwardSavesOnlyTensorsNeededByBackward) {
  Tensor a = random_tensor({3}, 1);
  const Tensor b = random_tensor({3}, 2);
  a.requires_grad_();
  const auto holders = [](const Tensor& x) { return x.storage()->use_count() + x.impl_ptr()->use_count(); };
  const uint32_t of_a = holders(a);
  const uint32_t of_b = holders(b);
  const Tensor sum = add(a, b, 0.5);
  EXPECT_EQ(holders(a), of_a);
  EXPECT_EQ(holders(b), of_b);
  const Tensor product = mul(a, b);
  EXPECT_EQ(holders(a), of_a);
  EXPECT_EQ(holders(b), of_b + 1);
  const Tensor quotient = div(a, b);
  EXPECT_EQ(holders(a), of_a);
  EXPECT_EQ(holders(b), of_b + 2);
}

TEST(Elementwise, OutOfRangeNumbersWrapAroundInArithmetic) {
  const Tensor x = tensor({1, 250}).to(kUInt8);
  const auto expect = [](const Tensor& result, std::vector<int64_t> values) {
    EXPECT_EQ(result.dtype(), kUInt8);
    EXPECT_EQ(result.to_vector<int64_t>(), values);
  };
  expect(x + 300, {45, 38});
  expect(x - 300, {213, 206});
  expect(300 - x, {43, 50});
  expect(x * 300, {44, 248});
  expect(x - 1, {0, 249});
  expect(add(x, x, 257), {2, 244});
}

TEST(Elementwise, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({4});
  EXPECT_ERROR(ShapeError, a + b,
               "add: shapes do not broadcast\n"
               "  a  cpu  float32 [2, 3]\n"
               "  b  cpu  float32 [4]");
  const Tensor flags = tensor({true, false});
  EXPECT_ERROR(DTypeError, flags - flags, "sub: bool is not accepted\n  a  cpu  bool [2]");
  const Tensor numbers = tensor({1, 2});
  EXPECT_ERROR(DTypeError, numbers - flags, "sub: bool is not accepted\n  b  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, flags - a.slice(1, 0, 2), "sub: bool is not accepted\n  a  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, flags - 1, "sub: bool is not accepted\n  a  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, 1 - flags, "sub: bool is not accepted\n  b  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, numbers - true, "sub: bool is not accepted (b is a bool)");
  EXPECT_ERROR(DTypeError, true - numbers, "sub: bool is not accepted (a is a bool)");
  EXPECT_ERROR(DTypeError, numbers.sub_(flags), "sub_: bool is not accepted\n  other  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, numbers.sub_(true), "sub_: bool is not accepted (other is a bool)");
  EXPECT_EQ(numbers.to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_ERROR(DTypeError, neg(flags), "neg: bool is not accepted\n  input  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, relu(flags), "relu: bool is not accepted\n  input  cpu  bool [2]");
  EXPECT_ERROR(DTypeError, add(tensor({1}), tensor({2}), 0.5),
               "add: alpha is the floating number 0.5, but the result is int64");
  EXPECT_ERROR(StateError, a + Tensor(),
               "add: b is undefined\n"
               "  a  cpu        float32 [2, 3]\n"
               "  b  undefined");
}

// A gradient that is rounded once has a mean error of a quarter of a unit in the last place, which is between 1 / 8 and
// 1 / 4 of the dtype's epsilon.
TEST(Elementwise, GradientOfHalfDivisorIsRoundedOnce) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    for (const bool create_graph : {false, true}) {
      const auto make = [&](uint64_t seed, double low) {
        return random_tensor({4000}, seed, dtype, low, 2).to(test_device());
      };
      const Tensor a = make(1, 0.5), b = make(2, 0.5).requires_grad_(), cotangent = make(3, 0.5);
      const Tensor y[] = {div(a, b)}, inputs[] = {b}, cotangents[] = {cotangent};
      const Values actual = grad(y, inputs, cotangents, {.create_graph = create_graph})[0].to_vector<double>();
      const Values as = a.to_vector<double>(), bs = b.detach().to_vector<double>(), gs = cotangent.to_vector<double>();
      double error = 0, rounding = 0;
      for (size_t i = 0; i < actual.size(); ++i) {
        const double exact = -gs[i] * as[i] / (bs[i] * bs[i]);
        error += std::abs(actual[i] / exact - 1);
        rounding += std::abs(full({}, exact, {dtype}).item() / exact - 1);
      }
      EXPECT_LE(error, 1.001 * rounding) << dtype << (create_graph ? " recorded" : "");
    }
  }
}

TEST(Elementwise, GradientOfDivisorAcceptsAnyLayout) {
  const Shape shape = {5, 33};
  for (const Layout of_a : kLayouts) {
    for (const Layout of_b : kLayouts) {
      for (const bool broadcast_a : {false, true}) {
        for (const Layout of_grad : kLayouts) {
          const auto make = [&](const Shape& of, uint64_t seed, Layout layout) {
            return make_tensor(random_dense(of, seed, 0.5, 2), kFloat64, layout, test_device());
          };
          const Tensor a = make(broadcast_a ? Shape{} : shape, 1, of_a), b = make(shape, 2, of_b).requires_grad_();
          const Tensor y[] = {div(a, b)}, inputs[] = {b}, cotangents[] = {make(shape, 3, of_grad)};
          const Dense expected = dense_map(shape, {dense(cotangents[0]), dense(a), dense(b.detach())},
                                           [](const Values& v) { return -v[0] * v[1] / (v[2] * v[2]); });
          EXPECT_TRUE(close(grad(y, inputs, cotangents)[0], expected, 8 * epsilon(kFloat64)));
        }
      }
    }
  }
}

}}  // namespace tandem::testing
