#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;
using Indices = std::vector<int64_t>;

Tensor on_device(const NestedList& values) { return tensor(values).to(test_device()); }

TEST(Scan, IntegersAreAccumulatedInInt64) {
  const Tensor x = full({300}, 200, {kUInt8, test_device()});
  EXPECT_EQ(cumsum(x, 0).dtype(), kInt64);
  EXPECT_EQ(cumsum(x, 0).to_vector<int64_t>()[299], 60000);
  EXPECT_EQ(cumsum(tensor({true, false, true}).to(test_device()), 0).to_vector<int64_t>(), (Indices{1, 1, 2}));
  EXPECT_EQ(cumprod(full({70}, 2, {kInt32, test_device()}), 0).to_vector<int64_t>()[61], int64_t{1} << 62);
  EXPECT_EQ(cumprod(full({70}, 2, {kInt32, test_device()}), 0).to_vector<int64_t>()[69], 0);
}

TEST(Scan, LongSumsStayAccurate) {
  const Tensor sums = cumsum(full({100000}, 0.1, {kFloat32, test_device()}), 0);
  EXPECT_NEAR(sums.to_vector<double>()[99999], 10000, 0.05);
  EXPECT_NEAR(cumsum(ones({4096}, {kBFloat16, test_device()}), 0).to_vector<double>()[4095], 4096, 0);
}

TEST(Scan, CumprodGradientIsExactWithZeros) {
  for (const Values& values : {Values{2, 0, 3, 4}, Values{0, 2, 0, 3}, Values{2, 3, 4, 0}, Values{0, 0, 0, 0}}) {
    const Tensor x = from_vector(values, {4}, {kFloat64, test_device()}).requires_grad_();
    cumprod(x, 0).backward(tensor({1.0, 10.0, 100.0, 1000.0}).to(kFloat64).to(test_device()));
    Values expected(4);
    for (size_t k = 0; k < 4; ++k) {
      double grad = 1;
      for (size_t j = k; j < 4; ++j, grad *= 10) {
        double product = std::pow(10, k) * grad;
        for (size_t i = 0; i <= j; ++i) product *= i == k ? 1 : values[i];
        expected[k] += product;
      }
    }
    EXPECT_EQ(x.grad().to_vector<double>(), expected);
  }
}

TEST(Scan, UnusedProductsThatOverflowDoNotChangeGradients) {
  const Tensor x = full({600}, 100.0, {kFloat32, test_device()}).requires_grad_();
  cumprod(x, 0).slice(0, 0, 2).backward(on_device({1, 1}).to(kFloat32));
  const Values gradient = x.grad().to_vector<double>();
  EXPECT_EQ(gradient[0], 101);
  EXPECT_EQ(gradient[1], 100);
  EXPECT_EQ(gradient[2], 0);
}

TEST(Scan, LogcumsumexpIsStable) {
  const Tensor x = on_device({-INFINITY, -INFINITY, 1000, 1000, -INFINITY}).to(kFloat64).requires_grad_();
  const Tensor out = logcumsumexp(x, 0);
  EXPECT_EQ(out.to_vector<double>(), (Values{-INFINITY, -INFINITY, 1000, 1000 + std::log(2), 1000 + std::log(2)}));
  out.slice(0, 2, 5).backward(ones({3}, out.options()));
  const Values gradient = x.grad().to_vector<double>();
  const double expected[] = {0, 0, 2, 1, 0};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-12) << i;
  const Values infinite = logcumsumexp(on_device({0, INFINITY, 1, -INFINITY, NAN, 1}), 0).to_vector<double>();
  EXPECT_EQ(Values(infinite.begin(), infinite.begin() + 4), (Values{0, INFINITY, INFINITY, INFINITY}));
  EXPECT_TRUE(std::isnan(infinite[4]) && std::isnan(infinite[5]));
}

TEST(Scan, ExtremaSelectTheLastOfEqualElementsAndOfNaNs) {
  const Tensor x = on_device({1, 3, 3, 2, NAN, 5, NAN, 1});
  EXPECT_EQ(cummax(x, 0).indices.to_vector<int64_t>(), (Indices{0, 1, 2, 2, 4, 4, 6, 6}));
  EXPECT_EQ(cummin(x, 0).indices.to_vector<int64_t>(), (Indices{0, 0, 0, 0, 4, 4, 6, 6}));
  const ValuesIndices columns = cummin(tensor({3, 1, 3, 2, 2, 0}).view({3, 2}).to(test_device()), 0);
  EXPECT_EQ(columns.values.to_vector<int64_t>(), (Indices{3, 1, 3, 1, 2, 0}));
  EXPECT_EQ(columns.indices.to_vector<int64_t>(), (Indices{0, 0, 1, 0, 2, 2}));
}

TEST(Scan, DimensionsAreChecked) {
  EXPECT_ERROR(IndexError, cumsum(zeros({2, 3}), 2),
               "cumsum: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_ERROR(DTypeError, logcumsumexp(tensor({1, 2}), 0),
               "logcumsumexp: input must be floating\n  input  cpu  int64 [2]");
}

}}  // namespace tandem::testing
