#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

Reduction reduction(const Arguments& a) {
  const std::string text = a.text("reduction", "mean");
  return text == "none"   ? Reduction::kNone
         : text == "sum"  ? Reduction::kSum
         : text == "mean" ? Reduction::kMean
                          : Reduction::kBatchMean;
}

}  // namespace

TANDEM_FIXTURES(loss) {
  constexpr double kTolerance = 32;
  const auto loss = [&](const std::string& name, std::function<Tensor(const Arguments&, Tensor, Tensor)> f) {
    fixtures.op("nn.functional." + name, kTolerance,
                [f](const Arguments& a) { return f(a, a.tensor("input"), a.tensor("target")); });
  };
  loss("cross_entropy", [](const Arguments& a, Tensor input, Tensor target) {
    return cross_entropy(input, target,
                         {.weight = a.tensor("weight"),
                          .ignore_index = a.integer("ignore_index", -100),
                          .reduction = reduction(a),
                          .label_smoothing = a.real("label_smoothing", 0)});
  });
  loss("nll_loss", [](const Arguments& a, Tensor input, Tensor target) {
    return nll_loss(
        input, target,
        {.weight = a.tensor("weight"), .ignore_index = a.integer("ignore_index", -100), .reduction = reduction(a)});
  });
  loss("mse_loss", [](const Arguments& a, Tensor x, Tensor y) { return mse_loss(x, y, reduction(a)); });
  loss("l1_loss", [](const Arguments& a, Tensor x, Tensor y) { return l1_loss(x, y, reduction(a)); });
  loss("smooth_l1_loss",
       [](const Arguments& a, Tensor x, Tensor y) { return smooth_l1_loss(x, y, reduction(a), a.real("beta", 1)); });
  loss("huber_loss",
       [](const Arguments& a, Tensor x, Tensor y) { return huber_loss(x, y, reduction(a), a.real("delta", 1)); });
  loss("binary_cross_entropy", [](const Arguments& a, Tensor x, Tensor y) {
    return binary_cross_entropy(x, y, a.tensor("weight"), reduction(a));
  });
  loss("binary_cross_entropy_with_logits", [](const Arguments& a, Tensor x, Tensor y) {
    return binary_cross_entropy_with_logits(x, y, a.tensor("weight"), reduction(a), a.tensor("pos_weight"));
  });
  loss("kl_div",
       [](const Arguments& a, Tensor x, Tensor y) { return kl_div(x, y, reduction(a), a.flag("log_target")); });
  loss("gaussian_nll_loss", [](const Arguments& a, Tensor x, Tensor y) {
    return gaussian_nll_loss(x, y, a.tensor("var"), a.flag("full"), a.real("eps", 1e-6), reduction(a));
  });
  fixtures.op("nn.functional.normalize", kTolerance, [](const Arguments& a) {
    return normalize(a.tensor("input"), a.real("p", 2), a.integer("dim", 1), a.real("eps", 1e-12));
  });
  fixtures.op("nn.functional.cosine_similarity", kTolerance, [](const Arguments& a) {
    return cosine_similarity(a.tensor("x1"), a.tensor("x2"), a.integer("dim", 1), a.real("eps", 1e-8));
  });
  fixtures.op("cdist", kTolerance,
              [](const Arguments& a) { return cdist(a.tensor("x1"), a.tensor("x2"), a.real("p", 2)); });
  fixtures.op("nn.functional.pairwise_distance", kTolerance, [](const Arguments& a) {
    return pairwise_distance(a.tensor("x1"), a.tensor("x2"), a.real("p", 2), a.real("eps", 1e-6), a.flag("keepdim"));
  });
  fixtures.op("nn.functional.triplet_margin_loss", kTolerance, [](const Arguments& a) {
    return triplet_margin_loss(a.tensor("anchor"), a.tensor("positive"), a.tensor("negative"),
                               {.margin = a.real("margin", 1),
                                .p = a.real("p", 2),
                                .eps = a.real("eps", 1e-6),
                                .swap = a.flag("swap"),
                                .reduction = reduction(a)});
  });
  fixtures.op("nn.functional.cosine_embedding_loss", kTolerance, [](const Arguments& a) {
    return cosine_embedding_loss(a.tensor("input1"), a.tensor("input2"), a.tensor("target"), a.real("margin", 0),
                                 reduction(a));
  });
}

}  // namespace tandem::testing
