#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Reduction;
using td::Tensor;

namespace {

void expect_equal(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.shape(), expected.shape());
  EXPECT_EQ(actual.to_vector<float>(), expected.to_vector<float>());
}

TEST(Loss, ModulesPassTensorsAndOptionsToTheirFunctions) {
  td::manual_seed(5);
  const Tensor x = td::randn({4, 3}), y = td::randn({4, 3}), z = td::randn({4, 3});
  const Tensor signs = td::tensor({1.0, -1.0, -1.0, 1.0}), positive = td::rand({4, 3}) + 0.1;
  const Reduction none = Reduction::kNone, sum = Reduction::kSum;
  expect_equal(nn::MSELoss()(x, y), td::mse_loss(x, y));
  expect_equal(nn::MSELoss(none)(x, y), td::mse_loss(x, y, none));
  expect_equal(nn::L1Loss()(x, y), td::l1_loss(x, y));
  expect_equal(nn::L1Loss(sum)(x, y), td::l1_loss(x, y, sum));
  expect_equal(nn::SmoothL1Loss()(x, y), td::smooth_l1_loss(x, y));
  expect_equal(nn::SmoothL1Loss(sum, 0.3)(x, y), td::smooth_l1_loss(x, y, sum, 0.3));
  expect_equal(nn::HuberLoss()(x, y), td::huber_loss(x, y));
  expect_equal(nn::HuberLoss(none, 0.3)(x, y), td::huber_loss(x, y, none, 0.3));
  expect_equal(nn::KLDivLoss()(x, positive), td::kl_div(x, positive));
  expect_equal(nn::KLDivLoss(Reduction::kBatchMean, true)(x, y), td::kl_div(x, y, Reduction::kBatchMean, true));
  expect_equal(nn::GaussianNLLLoss()(x, y, positive), td::gaussian_nll_loss(x, y, positive));
  expect_equal(nn::GaussianNLLLoss(true, 0.5, sum)(x, y, positive),
               td::gaussian_nll_loss(x, y, positive, true, 0.5, sum));
  expect_equal(nn::CosineEmbeddingLoss()(x, y, signs), td::cosine_embedding_loss(x, y, signs));
  expect_equal(nn::CosineEmbeddingLoss(0.2, none)(x, y, signs), td::cosine_embedding_loss(x, y, signs, 0.2, none));
  expect_equal(nn::TripletMarginLoss()(x, y, z), td::triplet_margin_loss(x, y, z));
  expect_equal(nn::TripletMarginLoss({.margin = 2, .swap = true})(x, y, z),
               td::triplet_margin_loss(x, y, z, {.margin = 2, .swap = true}));
}

TEST(Loss, WeightsAreBuffers) {
  td::manual_seed(5);
  const Tensor x = td::randn({4, 3}), labels = td::tensor({2, 0, 1, 2}), p = td::rand({4, 3}), q = td::rand({4, 3});
  nn::NLLLoss nll({.weight = td::tensor({0.5, 2.0, 3.0}), .reduction = Reduction::kSum});
  nll.weight.fill_(1);
  expect_equal(nll(x, labels), td::nll_loss(x, labels, {.reduction = Reduction::kSum}));
  expect_equal(nn::NLLLoss()(x, labels), td::nll_loss(x, labels));
  nn::BCELoss none({.weight = p, .reduction = Reduction::kNone});
  expect_equal(none(p, q), td::binary_cross_entropy(p, q, p, Reduction::kNone));
}

}  // namespace
