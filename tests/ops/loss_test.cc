#include <tandem/ops/loss.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/gradcheck.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing {
namespace {

/// cross_entropy in float64.
double reference(const Dense& logits, const Dense& labels) {
  const int64_t n = logits.shape[0], classes = logits.shape[1];
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    double max = logits[i * classes], exponentials = 0;
    for (int64_t j = 0; j < classes; ++j) max = std::max(max, logits[i * classes + j]);
    for (int64_t j = 0; j < classes; ++j) exponentials += std::exp(logits[i * classes + j] - max);
    sum += std::log(exponentials) + max - logits[i * classes + static_cast<int64_t>(labels[i])];
  }
  return sum / static_cast<double>(n);
}

OpCase cross_entropy_case(int64_t n, int64_t classes) {
  OpCase op;
  op.name = "cross_entropy";
  op.terms = static_cast<double>(classes);
  op.inputs = {{"logits", {n, classes}, -4, 4}, {"labels", {n}, 0, static_cast<double>(classes), kInt64, false}};
  op.run = [](const std::vector<Tensor>& in) { return cross_entropy(in[0], in[1]); };
  op.reference = [](const std::vector<Dense>& in) {
    Dense out = dense_zeros({});
    out[0] = reference(in[0], in[1]);
    return out;
  };
  return op;
}

TEST(CrossEntropy, MatchesItsFormula) {
  check(cross_entropy_case(7, 3));
  check(cross_entropy_case(1, 1));
  check(cross_entropy_case(3, 33));
  check(cross_entropy_case(31, 2));
}

TEST(CrossEntropy, ManyRows) { check_threads(cross_entropy_case(700, 101)); }

TEST(CrossEntropy, ALargeShiftOfTheLogitsChangesNothing) {
  // 2^16 and its neighbours by 1/4 are exact in float32: the loss and the gradient are those of the small numbers.
  const Tensor small = tensor({0.25, 1.5, -0.75}).view({1, 3}), labels = tensor({1});
  Tensor x = small.clone().set_requires_grad(),
         y = tensor({65536.25, 65537.5, 65535.25}).view({1, 3}).clone().set_requires_grad();
  const Tensor loss = cross_entropy(x, labels), shifted = cross_entropy(y, labels);
  EXPECT_EQ(loss.item<float>(), shifted.item<float>());
  loss.backward(full({}, 3.5));
  shifted.backward(full({}, 3.5));
  EXPECT_EQ(x.grad().to_vector<float>(), y.grad().to_vector<float>());
}

TEST(CrossEntropy, ConfidentAndWrong) {
  Tensor x = tensor({200.0, 0.0}).view({1, 2}).clone().set_requires_grad();
  const Tensor loss = cross_entropy(x, tensor({1}));
  EXPECT_EQ(loss.item<float>(), 200.0f);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, -1}));
}

TEST(CrossEntropy, OfNothingIsNan) {
  EXPECT_TRUE(std::isnan(cross_entropy(empty({0, 3}), empty({0}, {kInt64})).item<float>()));
}

TEST(CrossEntropy, ErrorsAndTheirTexts) {
  const Tensor logits = zeros({4, 10});
  EXPECT_EQ(error_text<IndexError>([&] {
              cross_entropy(logits, tensor({1, 9, 10, -1}));
            }),
            "cross_entropy: label 10 at position 2 is outside [0, 10)");
  EXPECT_EQ(error_text<IndexError>([&] {
              cross_entropy(logits, tensor({1, -7, 10, 0}));
            }),
            "cross_entropy: label -7 at position 1 is outside [0, 10)");
  EXPECT_EQ(error_text<DTypeError>([&] { cross_entropy(logits, zeros({4}, {kInt32})); }),
            "cross_entropy: labels must be int64\n"
            "  logits  cpu  float32 [4, 10]\n"
            "  labels  cpu  int32   [4]");
  EXPECT_EQ(error_text<ShapeError>([&] { cross_entropy(logits, zeros({5}, {kInt64})); }),
            "cross_entropy: logits must be [N, C] and labels [N]\n"
            "  logits  cpu  float32 [4, 10]\n"
            "  labels  cpu  int64   [5]");
}

}  // namespace
}  // namespace tandem::testing
