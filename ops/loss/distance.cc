// Similarities, distances and their losses.
#include <tandem/ops/cast.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss/loss_operands.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

Tensor unit_vectors(const Tensor& x, double p, int64_t dim, double eps) {
  return div(x, clamp(norm(x, p, {dim}, true), eps));
}

}  // namespace

Tensor normalize(Tensor input, double p, int64_t dim, double eps) {
  const LossCall call("normalize", {{"input", &input}});
  dim = wrap_dim("normalize", dim, input.dim());
  return to(unit_vectors(input, p, dim, eps), call.dtype);
}

Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim, double eps) {
  const LossCall call("cosine_similarity", {{"x1", &x1}, {"x2", &x2}});
  const Shape shape = broadcast_shape("cosine_similarity", {{"x1", x1}, {"x2", x2}});
  dim = wrap_dim("cosine_similarity", dim, shape.dim());
  const auto unit = [&](const Tensor& x) { return unit_vectors(x.expand(shape), 2, dim, eps); };
  const Tensor product = mul(unit(x1), unit(x2));
  return to(shape.empty() ? product : sum(product, {dim}), call.dtype);
}

Tensor pairwise_distance(Tensor x1, Tensor x2, double p, double eps, bool keepdim) {
  const LossCall call("pairwise_distance", {{"x1", &x1}, {"x2", &x2}});
  const Shape shape = broadcast_shape("pairwise_distance", {{"x1", x1}, {"x2", x2}});
  call.require(!shape.empty(), "x1 or x2 must have a dimension");
  return to(norm(add(sub(x1, x2), eps), p, {-1}, keepdim), call.dtype);
}

Tensor cdist(Tensor x1, Tensor x2, double p) {
  const LossCall call("cdist", {{"x1", &x1}, {"x2", &x2}});
  TANDEM_CHECK(ValueError, p >= 0, "cdist: p is ", p, ", expected at least 0");
  call.require(x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1),
               "x1 and x2 must be [..., P, M] and [..., R, M]");
  return to(norm(sub(x1.unsqueeze(-2), x2.unsqueeze(-3)), p, -1), call.dtype);
}

Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, const TripletMarginLossOptions& options) {
  const char* op = "triplet_margin_loss";
  TANDEM_CHECK(ValueError, options.margin > 0, op, ": margin is ", options.margin, ", expected a positive number");
  const LossCall call(op, {{"anchor", &anchor}, {"positive", &positive}, {"negative", &negative}});
  const Shape shape = broadcast_shape(op, {{"anchor", anchor}, {"positive", positive}, {"negative", negative}});
  call.require(!shape.empty(), "the tensors must have a dimension");
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return norm(add(sub(a, b), options.eps), options.p, {-1});
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return call.result(relu(add(sub(near, far), options.margin)), options.reduction);
}

Tensor cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, double margin, Reduction reduction) {
  const char* op = "cosine_embedding_loss";
  const LossCall call(op, {{"input1", &input1}, {"input2", &input2}, {"target", target}});
  Shape rows = input1.shape();
  if (!rows.empty()) rows.pop_back();
  call.require(input1.shape() == input2.shape() && (input1.dim() == 1 || input1.dim() == 2) && target.shape() == rows,
               "input1 and input2 must be [N, D] and target [N], or [D] and []");
  const auto sum_of = [](const Tensor& a, const Tensor& b) { return sum(mul(a, b), {-1}); };
  const Tensor squares = mul(add(sum_of(input1, input1), 1e-12), add(sum_of(input2, input2), 1e-12));
  const Tensor cosine = div(sum_of(input1, input2), sqrt(squares));
  const Tensor negative = where(eq(target, -1), relu(sub(cosine, margin)), 0);
  return call.result(where(eq(target, 1), sub(1, cosine), negative), reduction);
}

}}  // namespace tandem::v0
