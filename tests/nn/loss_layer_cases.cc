#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

void add_loss_layers(LayerCases cases) {
  const auto pair = [](auto& loss, const std::vector<Tensor>& in) { return loss(in[0], in[1]); };
  const auto triple = [](auto& loss, const std::vector<Tensor>& in) { return loss(in[0], in[1], in[2]); };
  const auto weight = [](const NestedList& values) { return tensor(values, TensorOptions{kFloat64}); };
  cases.add("mse", pair, [] { return nn::MSELoss(); });
  cases.add("mse_sum", pair, [] { return nn::MSELoss(Reduction::kSum); });
  cases.add("l1", pair, [] { return nn::L1Loss(); });
  cases.add("l1_none", pair, [] { return nn::L1Loss(Reduction::kNone); });
  cases.add("smooth_l1", pair, [] { return nn::SmoothL1Loss(Reduction::kMean, 0.5); });
  cases.add("huber", pair, [] { return nn::HuberLoss(Reduction::kMean, 0.5); });
  cases.add("kl_div", pair, [] { return nn::KLDivLoss(Reduction::kSum); });
  cases.add("kl_div_log", pair, [] { return nn::KLDivLoss(Reduction::kSum, true); });
  cases.add("gaussian_nll", triple, [] { return nn::GaussianNLLLoss(true); });
  cases.add("cosine_embedding", triple, [] { return nn::CosineEmbeddingLoss(0.1); });
  cases.add("triplet_margin", triple, [] { return nn::TripletMarginLoss({.margin = 2, .swap = true}); });
  cases.add("cross_entropy", pair, [] { return nn::CrossEntropyLoss(); });
  cases.add("cross_entropy_options", pair, [weight] {
    return nn::CrossEntropyLoss({.weight = weight({0.5, 2, 1, 0.25}), .ignore_index = 3, .label_smoothing = 0.1});
  });
  cases.add("nll", pair, [weight] {
    return nn::NLLLoss({.weight = weight({0.5, 2, 1, 0.25}), .reduction = Reduction::kSum});
  });
  cases.add("bce", pair, [] { return nn::BCELoss(); });
  cases.add("bce_weight", pair, [weight] { return nn::BCELoss({.weight = weight({0.5, 2})}); });
  cases.add("bce_with_logits", pair, [] { return nn::BCEWithLogitsLoss(); });
  cases.add("bce_with_logits_weights", pair, [weight] {
    return nn::BCEWithLogitsLoss({.weight = weight({0.5, 2}), .pos_weight = weight({2, 1})});
  });
}

}  // namespace tandem::testing
