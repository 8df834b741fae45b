#include <tandem/ops/loss.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/gradcheck.h>
#include <tandem/ops/softmax.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

TEST(CrossEntropy, LargeLogitShiftDoesNotChangeResult) {
  // 2^16 plus multiples of 1/4 is exact in float32, so loss and gradient are those of the small numbers.
  const Tensor small = tensor({0.25, 1.5, -0.75}).view({1, 3}), labels = tensor({1});
  Tensor x = small.clone().set_requires_grad(),
         y = tensor({65536.25, 65537.5, 65535.25}).view({1, 3}).clone().set_requires_grad();
  const Tensor loss = cross_entropy(x, labels), shifted = cross_entropy(y, labels);
  EXPECT_EQ(loss.item<float>(), shifted.item<float>());
  loss.backward(full({}, 3.5));
  shifted.backward(full({}, 3.5));
  EXPECT_EQ(x.grad().to_vector<float>(), y.grad().to_vector<float>());
}

TEST(CrossEntropy, ConfidentWrongPredictionHasExactLossAndGradient) {
  Tensor x = tensor({200.0, 0.0}).view({1, 2}).clone().set_requires_grad();
  const Tensor loss = cross_entropy(x, tensor({1}));
  EXPECT_EQ(loss.item<float>(), 200.0f);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, -1}));
}

TEST(CrossEntropy, EmptyBatchGivesNaN) {
  EXPECT_TRUE(std::isnan(cross_entropy(empty({0, 3}), empty({0}, {kInt64})).item<float>()));
}

TEST(CrossEntropy, LabelWithoutClassesIsRejected) {
  const Device device = test_device();
  EXPECT_EQ(error_text<IndexError>([&] {
              cross_entropy(zeros({2, 0}, {kFloat32, device}), zeros({2}, {kInt64, device}));
            }),
            "cross_entropy: label 0 at position 0 is outside [0, 0)");
}

TEST(CrossEntropy, InvalidArgumentsAreNamedInErrors) {
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

// --- nll_loss ------------------------------------------------------------------------------------

TEST(NllLoss, EmptyBatchGivesNaN) {
  EXPECT_TRUE(std::isnan(nll_loss(empty({0, 3}), empty({0}, {kInt64})).item<float>()));
}

TEST(NllLoss, LossOfLogSoftmaxEqualsCrossEntropy) {
  const Tensor labels = tensor({2, 0, 1});
  Tensor x = random_tensor({3, 5}, 1, kFloat64).set_requires_grad(), y = x.detach().clone().set_requires_grad();
  const Tensor a = nll_loss(log_softmax(x, 1), labels), b = cross_entropy(y, labels);
  EXPECT_NEAR(a.item(), b.item(), 1e-15);
  a.backward(full({}, 3, {kFloat64}));
  b.backward(full({}, 3, {kFloat64}));
  EXPECT_TRUE(close(x.grad(), dense(y.grad()), 1e-15));
}

TEST(NllLoss, InvalidArgumentsAreNamedInErrors) {
  const Tensor log_probs = zeros({4, 10});
  EXPECT_EQ(error_text<IndexError>([&] {
              nll_loss(log_probs, tensor({1, 9, 10, -1}));
            }),
            "nll_loss: label 10 at position 2 is outside [0, 10)");
  EXPECT_EQ(error_text<DTypeError>([&] { nll_loss(log_probs, zeros({4}, {kInt32})); }),
            "nll_loss: labels must be int64\n"
            "  log_probs  cpu  float32 [4, 10]\n"
            "  labels     cpu  int32   [4]");
  EXPECT_EQ(error_text<ShapeError>([&] { nll_loss(log_probs, zeros({5}, {kInt64})); }),
            "nll_loss: log_probs must be [N, C] and labels [N]\n"
            "  log_probs  cpu  float32 [4, 10]\n"
            "  labels     cpu  int64   [5]");
  EXPECT_EQ(error_text<DTypeError>([&] {
              nll_loss(zeros({4, 10}, {kInt64}), zeros({4}, {kInt64}));
            }),
            "nll_loss: log_probs must be floating\n"
            "  log_probs  cpu  int64 [4, 10]");
}

// --- mse_loss ------------------------------------------------------------------------------------

TEST(MseLoss, EmptyInputGivesNaN) { EXPECT_TRUE(std::isnan(mse_loss(empty({0}), empty({0})).item<float>())); }

TEST(MseLoss, HalfTypesDoNotOverflow) {
  // 300^2 overflows float16, but the mean over four elements does not.
  Tensor x = zeros({4}, {kFloat16});
  x.select(0, 1).fill_(300);
  x = x.detach().set_requires_grad();
  const Tensor loss = mse_loss(x, zeros({4}, {kFloat16}));
  EXPECT_EQ(loss.dtype(), kFloat16);
  EXPECT_EQ(loss.item(), 22496);  // nearest float16 of 22500
  loss.backward(full({}, 0.5, {kFloat16}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 75, 0, 0}));
}

TEST(MseLoss, MixedDTypesArePromoted) {
  Tensor x = tensor({1.0, 2.0}).set_requires_grad();
  const Tensor loss = mse_loss(x, zeros({2}, {kFloat64}));
  EXPECT_EQ(loss.dtype(), kFloat64);
  loss.backward();
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2}));
}

TEST(MseLoss, InvalidArgumentsAreNamedInErrors) {
  EXPECT_EQ(error_text<ShapeError>([&] {
              mse_loss(zeros({4, 1}), zeros({4}));
            }),
            "mse_loss: shapes differ\n"
            "  input   cpu  float32 [4, 1]\n"
            "  target  cpu  float32 [4]");
  EXPECT_EQ(error_text<DTypeError>([&] {
              mse_loss(zeros({2}), tensor({1, 2}));
            }),
            "mse_loss: target must be floating\n"
            "  target  cpu  int64 [2]");
  EXPECT_EQ(error_text<DTypeError>([&] {
              mse_loss(tensor({1, 2}), zeros({2}));
            }),
            "mse_loss: input must be floating\n"
            "  input  cpu  int64 [2]");
}

}}  // namespace tandem::testing
