#include <tandem/nn/loss.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor FunctionLoss::call(const Tensor& a, const Tensor& b, const Tensor& c) const {
  const ModuleScope scope(*this);
  return function_(a, b, c);
}

MSELoss::MSELoss(Reduction reduction)
    : PairLoss([=](const Tensor& a, const Tensor& b, const Tensor&) { return mse_loss(a, b, reduction); }) {}

L1Loss::L1Loss(Reduction reduction)
    : PairLoss([=](const Tensor& a, const Tensor& b, const Tensor&) { return l1_loss(a, b, reduction); }) {}

SmoothL1Loss::SmoothL1Loss(Reduction reduction, double beta)
    : PairLoss([=](const Tensor& a, const Tensor& b, const Tensor&) { return smooth_l1_loss(a, b, reduction, beta); }) {
}

HuberLoss::HuberLoss(Reduction reduction, double delta)
    : PairLoss([=](const Tensor& a, const Tensor& b, const Tensor&) { return huber_loss(a, b, reduction, delta); }) {}

KLDivLoss::KLDivLoss(Reduction reduction, bool log_target)
    : PairLoss([=](const Tensor& a, const Tensor& b, const Tensor&) { return kl_div(a, b, reduction, log_target); }) {}

GaussianNLLLoss::GaussianNLLLoss(bool full, double eps, Reduction reduction)
    : TripleLoss([=](const Tensor& a, const Tensor& b, const Tensor& c) {
        return gaussian_nll_loss(a, b, c, full, eps, reduction);
      }) {}

CosineEmbeddingLoss::CosineEmbeddingLoss(double margin, Reduction reduction)
    : TripleLoss([=](const Tensor& a, const Tensor& b, const Tensor& c) {
        return cosine_embedding_loss(a, b, c, margin, reduction);
      }) {}

TripletMarginLoss::TripletMarginLoss(const TripletMarginLossOptions& options)
    : TripleLoss(
          [=](const Tensor& a, const Tensor& b, const Tensor& c) { return triplet_margin_loss(a, b, c, options); }) {}

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyOptions& options)
    : weight(add_buffer("weight", options.weight)), options_(options) {}

Tensor CrossEntropyLoss::operator()(const Tensor& input, const Tensor& target) {
  const ModuleScope scope(*this);
  CrossEntropyOptions options = options_;
  options.weight = weight;
  return cross_entropy(input, target, options);
}

NLLLoss::NLLLoss(const NllLossOptions& options) : weight(add_buffer("weight", options.weight)), options_(options) {}

Tensor NLLLoss::operator()(const Tensor& input, const Tensor& target) {
  const ModuleScope scope(*this);
  NllLossOptions options = options_;
  options.weight = weight;
  return nll_loss(input, target, options);
}

BCELoss::BCELoss(const BCELossOptions& options)
    : weight(add_buffer("weight", options.weight)), reduction_(options.reduction) {}

Tensor BCELoss::operator()(const Tensor& input, const Tensor& target) {
  const ModuleScope scope(*this);
  return binary_cross_entropy(input, target, weight, reduction_);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options)
    : weight(add_buffer("weight", options.weight)),
      pos_weight(add_buffer("pos_weight", options.pos_weight)),
      reduction_(options.reduction) {}

Tensor BCEWithLogitsLoss::operator()(const Tensor& input, const Tensor& target) {
  const ModuleScope scope(*this);
  return binary_cross_entropy_with_logits(input, target, weight, reduction_, pos_weight);
}

}}}  // namespace tandem::v0::nn
