#include <tandem/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/cast.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

/// softmax over `dim`, or its logarithm, in float64.
Dense reference(const Dense& x, int64_t dim, bool log) {
  Dense out = x;
  if (x.num_elements() == 0) return out;
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  const int64_t size = x.shape.empty() ? 1 : x.shape[static_cast<size_t>(dim)];
  for (int64_t start = 0; start < x.num_elements(); ++start) {
    if (start / inner % size != 0) continue;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < size; ++i) max = std::max(max, x[start + i * inner]);
    for (int64_t i = 0; i < size; ++i) sum += std::exp(x[start + i * inner] - max);
    for (int64_t i = 0; i < size; ++i) {
      const double value = x[start + i * inner] - max - std::log(sum);
      out[start + i * inner] = log ? value : std::exp(value);
    }
  }
  return out;
}

class Softmax : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Softmax, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "log_softmax" : "softmax"; });

TEST_P(Softmax, EmptyAndScalarInputsAreAccepted) {
  const auto run = [&](const Tensor& x, int64_t dim) { return GetParam() ? log_softmax(x, dim) : softmax(x, dim); };
  EXPECT_EQ(run(empty({0, 3}), 1).shape(), Shape({0, 3}));
  EXPECT_EQ(run(empty({3, 0}), 1).shape(), Shape({3, 0}));
  EXPECT_EQ(run(empty({3, 0}), 0).shape(), Shape({3, 0}));
  EXPECT_EQ(run(full({}, 5.0), 0).item<float>(), GetParam() ? 0.0f : 1.0f);
}

TEST_P(Softmax, LargeValuesDoNotOverflow) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const int64_t dim : {0, 1}) {
      const Dense values{{2, 2}, {1e4, 1e4 + 1, -1e4, -1e4 + 1}};
      const Tensor x = make_tensor(values, dtype);
      const Tensor y = GetParam() ? log_softmax(x, dim) : softmax(x, dim);
      EXPECT_TRUE(close(y, reference(values, dim, GetParam()), 8 * epsilon(dtype)));
    }
  }
}

TEST_P(Softmax, NegativeInfinityGetsZeroWeightAndNaNSpreads) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const bool columns : {false, true}) {
      const auto run = [&](std::vector<double> values) {
        Tensor x = make_tensor({{1, 2}, std::move(values)}, dtype);
        if (columns) x = make_tensor({{2, 2}, {dense(x)[0], 0, dense(x)[1], 0}}, dtype);
        const Tensor y = GetParam() ? log_softmax(x, columns ? 0 : 1) : softmax(x, columns ? 0 : 1);
        const std::vector<double> all = y.to_vector<double>();
        return columns ? std::vector<double>{all[0], all[2]} : all;
      };
      EXPECT_EQ(run({-inf, 3}), GetParam() ? (std::vector<double>{-inf, 0}) : (std::vector<double>{0, 1}));
      for (const double value : run({-inf, -inf})) EXPECT_TRUE(std::isnan(value));
      for (const double value : run({nan, 3})) EXPECT_TRUE(std::isnan(value));
      for (const double value : run({3, nan})) EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(SoftmaxErrors, MessagesNameTheOperation) {
  EXPECT_EQ(error_text<IndexError>([] {
              softmax(empty({2, 3}), 2);
            }),
            error_text<IndexError>([] { wrap_dim("softmax", 2, 2); }));
  EXPECT_EQ(error_text<DTypeError>([] { log_softmax(empty({2}, {kInt64}), 0); }).substr(0, 12), "log_softmax:");
}

TEST(SoftmaxDType, ConvertsTheInput) {
  const Tensor x = tensor({1, 2, 3}), half = x.to(kFloat16);
  EXPECT_TRUE(same_bits(softmax(x, 0, kFloat64), softmax(x.to(kFloat64), 0)));
  EXPECT_TRUE(same_bits(log_softmax(half, 0, kFloat32), log_softmax(x.to(kFloat32), 0)));
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(softmax(half, 0, kFloat16).dtype(), kFloat16);
  EXPECT_EQ(error_text<DTypeError>([&] { softmax(half, 0, kInt64); }),
            "softmax: input must be floating\n  input  cpu  int64 [3]");
}

}}  // namespace tandem::testing
