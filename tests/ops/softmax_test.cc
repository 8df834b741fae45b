#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

class Softmax : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Softmax, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "log_softmax" : "softmax"; });

TEST_P(Softmax, LargeValuesDoNotOverflow) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor rows = make_tensor({{2, 2}, {1e4, 1e4 + 1, -1e4, -1e4 + 1}}, dtype);
    const double less = 1 / (1 + std::exp(1)), more = 1 - less;
    const std::vector<double> values =
        GetParam() ? std::vector{std::log(less), std::log(more)} : std::vector{less, more};
    const Dense expected{{2, 2}, {values[0], values[1], values[0], values[1]}};
    EXPECT_TRUE(close(GetParam() ? log_softmax(rows, 1) : softmax(rows, 1), expected, 8 * epsilon(dtype)));
    EXPECT_TRUE(
        close(GetParam() ? log_softmax(rows.t(), 0).t() : softmax(rows.t(), 0).t(), expected, 8 * epsilon(dtype)));
  }
}

TEST_P(Softmax, SumsOfWideRowsKeepTheirPrecision) {
  constexpr int64_t kSize = 1 << 20;
  const double weight = std::exp(-static_cast<double>(0.3f)), sum = 1 + (kSize - 1) * weight;
  for (const Shape& shape : {Shape{kSize}, Shape{kSize, 2}}) {
    Tensor x = full(shape, -0.3, {kFloat32, test_device()});
    x[0].zero_();
    x.requires_grad_();
    const Tensor y = GetParam() ? log_softmax(x, 0) : softmax(x, 0);
    const auto first = [](const Tensor& t) { return static_cast<double>(t.flatten()[0].item<float>()); };
    EXPECT_NEAR(first(y) / (GetParam() ? -std::log(sum) : 1 / sum), 1, GetParam() ? 3e-7 : 3e-6);
    y.backward(full(shape, 0.75 * weight, {kFloat32, test_device()}));
    if (GetParam()) {
      EXPECT_NEAR(first(x.grad()) / (0.75 * weight * (1 - kSize / sum)), 1, 1e-5);
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
  EXPECT_ERROR(IndexError, softmax(empty({2, 3}), 2), error_text<IndexError>([] { wrap_dim("softmax", 2, 2); }));
  EXPECT_EQ(error_text<DTypeError>([] { log_softmax(empty({2}, {kInt64}), 0); }).substr(0, 12), "log_softmax:");
}

TEST(SoftmaxDType, ConvertsTheInput) {
  const Tensor x = tensor({1, 2, 3}), half = x.to(kFloat16);
  EXPECT_TRUE(same_bits(softmax(x, 0, kFloat64), softmax(x.to(kFloat64), 0)));
  EXPECT_TRUE(same_bits(log_softmax(half, 0, kFloat32), log_softmax(x.to(kFloat32), 0)));
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(softmax(half, 0, kFloat16).dtype(), kFloat16);
  EXPECT_ERROR(DTypeError, softmax(half, 0, kInt64), "softmax: input must be floating\n  input  cpu  int64 [3]");
}

}}  // namespace tandem::testing
