#include <tandem/nn/loss.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Reduction;
using td::Tensor;
using td::testing::error_text;

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

/// The keys and buffers of a module.
std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& [key, tensor] : module.state_dict().tensors()) result.push_back(key);
  return result;
}

TEST(Loss, WeightsAreBuffers) {
  td::manual_seed(5);
  const Tensor x = td::randn({4, 3}), labels = td::tensor({2, 0, 1, 2}), p = td::rand({4, 3}), q = td::rand({4, 3});
  const auto weight = [] { return td::tensor({0.5, 2.0, 3.0}); };
  const std::vector<std::string> one = {"weight"};
  nn::CrossEntropyLoss cross_entropy({.weight = weight(), .ignore_index = 0, .label_smoothing = 0.1});
  EXPECT_EQ(keys(cross_entropy), one);
  expect_equal(cross_entropy(x, labels),
               td::cross_entropy(x, labels, {.weight = weight(), .ignore_index = 0, .label_smoothing = 0.1}));
  nn::NLLLoss nll({.weight = weight(), .reduction = Reduction::kSum});
  EXPECT_EQ(keys(nll), one);
  expect_equal(nll(x, labels), td::nll_loss(x, labels, {.weight = weight(), .reduction = Reduction::kSum}));
  nn::BCELoss bce({.weight = weight(), .reduction = Reduction::kNone});
  EXPECT_EQ(keys(bce), one);
  expect_equal(bce(p, q), td::binary_cross_entropy(p, q, weight(), Reduction::kNone));
  nn::BCEWithLogitsLoss logits({.weight = weight(), .pos_weight = weight() * 2});
  EXPECT_EQ(keys(logits), (std::vector<std::string>{"weight", "pos_weight"}));
  expect_equal(logits(x, q), td::binary_cross_entropy_with_logits(x, q, weight(), Reduction::kMean, weight() * 2));
  // A changed buffer is used by the next call.
  nll.weight.fill_(1);
  expect_equal(nll(x, labels), td::nll_loss(x, labels, {.reduction = Reduction::kSum}));
  nn::NLLLoss plain;
  EXPECT_TRUE(keys(plain).empty());
  expect_equal(plain(x, labels), td::nll_loss(x, labels));
  expect_equal(nn::CrossEntropyLoss()(x, labels), td::cross_entropy(x, labels));
  expect_equal(nn::BCELoss()(p, q), td::binary_cross_entropy(p, q));
  expect_equal(nn::BCEWithLogitsLoss()(x, q), td::binary_cross_entropy_with_logits(x, q));
}

TEST(Loss, ErrorsNameTheModule) {
  nn::Module root;
  auto& loss = root.add<nn::MSELoss>("criterion");
  const std::string text = error_text<td::ShapeError>([&] { loss(td::ones({2}), td::ones({3})); });
  EXPECT_TRUE(text.ends_with("\n  in MSELoss 'criterion'")) << text;
  auto& cross_entropy = root.add<nn::CrossEntropyLoss>("labels");
  const std::string of_labels = error_text<td::IndexError>([&] { cross_entropy(td::ones({1, 2}), td::tensor({2})); });
  EXPECT_TRUE(of_labels.ends_with("\n  in CrossEntropyLoss 'labels'")) << of_labels;
}

}  // namespace
