#include <tandem/nn/loss.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/nn/layer_cases.h>

namespace tandem::testing {

void add_loss_layers(LayerCases cases) {
  const auto pair = [](auto& loss, const std::vector<Tensor>& in) { return loss(in[0], in[1]); };
  const auto triple = [](auto& loss, const std::vector<Tensor>& in) { return loss(in[0], in[1], in[2]); };
  const auto weight = [](const NestedList& values) { return tensor(values, TensorOptions{kFloat64}); };
  cases.add(
      "mse", [] { return nn::MSELoss(); }, pair);
  cases.add(
      "mse_sum", [] { return nn::MSELoss(Reduction::kSum); }, pair);
  cases.add(
      "l1", [] { return nn::L1Loss(); }, pair);
  cases.add(
      "l1_none", [] { return nn::L1Loss(Reduction::kNone); }, pair);
  cases.add(
      "smooth_l1", [] { return nn::SmoothL1Loss(Reduction::kMean, 0.5); }, pair);
  cases.add(
      "huber", [] { return nn::HuberLoss(Reduction::kMean, 0.5); }, pair);
  cases.add(
      "kl_div", [] { return nn::KLDivLoss(Reduction::kSum); }, pair);
  cases.add(
      "kl_div_log", [] { return nn::KLDivLoss(Reduction::kSum, true); }, pair);
  cases.add(
      "gaussian_nll", [] { return nn::GaussianNLLLoss(true); }, triple);
  cases.add(
      "cosine_embedding", [] { return nn::CosineEmbeddingLoss(0.1); }, triple);
  cases.add(
      "triplet_margin", [] { return nn::TripletMarginLoss({.margin = 2, .swap = true}); }, triple);
  cases.add(
      "cross_entropy", [] { return nn::CrossEntropyLoss(); }, pair);
  cases.add(
      "cross_entropy_options",
      [weight] {
        return nn::CrossEntropyLoss({.weight = weight({0.5, 2, 1, 0.25}), .ignore_index = 3, .label_smoothing = 0.1});
      },
      pair);
  cases.add(
      "nll",
      [weight] {
        return nn::NLLLoss({.weight = weight({0.5, 2, 1, 0.25}), .reduction = Reduction::kSum});
      },
      pair);
  cases.add(
      "bce", [] { return nn::BCELoss(); }, pair);
  cases.add(
      "bce_weight",
      [weight] {
        return nn::BCELoss({.weight = weight({0.5, 2})});
      },
      pair);
  cases.add(
      "bce_with_logits", [] { return nn::BCEWithLogitsLoss(); }, pair);
  cases.add(
      "bce_with_logits_weights",
      [weight] {
        return nn::BCEWithLogitsLoss({.weight = weight({0.5, 2}), .pos_weight = weight({2, 1})});
      },
      pair);
}

}  // namespace tandem::testing
