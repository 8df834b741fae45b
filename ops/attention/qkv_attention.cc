// Attention of heads whose queries, keys and values come from one projection.
#include <tandem/base/math.h>
#include <tandem/ops/attention.h>

#include <tandem/ops/attention/attention_pass.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

/// [..., T, H * d] viewed as [..., H, T, d], or the inverse; recorded.
Tensor split_heads(const Tensor& tensor, int64_t num_heads) {
  Shape shape = tensor.shape();
  shape.back() = num_heads;
  shape.push_back(tensor.size(-1) / num_heads);
  return tensor.view(shape).transpose(-3, -2);
}
Tensor join_heads(const Tensor& tensor) { return tensor.transpose(-3, -2).flatten(-2); }

/// Queries, keys and values of qkv [..., T, 3 * H * d] as [..., H, T, d], recorded.
AttentionInputs inputs_of(const Tensor& qkv, int64_t num_heads, const Tensor& attn_mask,
                          const AttentionAttributes& attributes) {
  const int64_t width = qkv.size(-1) / 3;
  const auto part = [&](int64_t i) { return split_heads(qkv.slice(-1, i * width, (i + 1) * width), num_heads); };
  return {part(0), part(1), part(2), attn_mask, attributes};
}

}  // namespace

Tensor qkv_attention(const Tensor& qkv_argument, int64_t num_heads, const AttentionOptions& options) {
  constexpr const char* kName = "qkv_attention";
  Tensor qkv = qkv_argument;
  const Tensor& attn_mask = options.attn_mask;
  const Call call(kName, CastPolicy::kLowPrecision, {{"qkv", &qkv}, {"attn_mask", attn_mask, kOptional}},
                  DTypes::kFloating);
  call.require<ValueError>(!options.enable_gqa,
                           "enable_gqa is set, but qkv has a key and a value for each head; pass them to "
                           "scaled_dot_product_attention");
  call.require<ValueError>(num_heads >= 1, "num_heads is ", num_heads, ", must be at least 1");
  call.require(qkv.dim() >= 2, "qkv must have at least 2 dimensions");
  call.require(qkv.size(-1) % saturating_mul(3, num_heads) == 0, "the last dimension must be a multiple of 3 * ",
               num_heads);
  Shape scores = qkv.shape();
  scores.back() = qkv.size(-2);
  scores.insert(scores.size() - 2, num_heads);
  if (attn_mask.defined()) check_attention_mask(call, attn_mask, scores);
  const int64_t width = qkv.size(-1) / 3;
  if (attn_mask.defined() && autograd::should_record(attn_mask)) {
    const AttentionInputs in = inputs_of(qkv, num_heads, attn_mask, {});
    return join_heads(scaled_dot_product_attention(in.query, in.key, in.value, options));
  }
  const AttentionAttributes attributes =
      attention_attributes(kName, options, scores, width / num_heads, /*group=*/1, qkv.device());

  Shape shape = qkv.shape();
  shape.back() = width;
  const Tensor out = empty(shape, qkv.options());
  const Tensor statistics = [&] {
    const NoGradGuard no_grad;
    return attention_forward(inputs_of(row_major(qkv), num_heads, attn_mask, attributes), split_heads(out, num_heads));
  }();
  const auto gradient = [attributes, num_heads](BackwardContext& context, const SavedTensor& saved_qkv,
                                                const SavedTensor& mask, const SavedTensor& saved_out,
                                                const SavedTensor& sums) {
    const bool is_recorded = context.create_graph();
    const Tensor saved = is_recorded ? saved_qkv.get() : row_major(saved_qkv.get());
    const AttentionInputs in = inputs_of(saved, num_heads, mask.get(), attributes);
    const Tensor grad = split_heads(is_recorded ? context.grad() : row_major(context.grad()), num_heads);
    if (is_recorded) {
      const TensorList grads = composed_backward(in, sums.get(), grad);
      return cat({join_heads(grads[0]), join_heads(grads[1]), join_heads(grads[2])}, -1);
    }
    const Tensor result = empty(saved.shape(), saved.options());
    const AttentionInputs parts = inputs_of(result, num_heads, {}, {});
    const Tensor grads[] = {parts.query, parts.key, parts.value};
    attention_backward(in, split_heads(saved_out.get(), num_heads), sums.get(), grad, grads);
    return result;
  };
  record_gradient(kName, out, {&qkv},
                  {{"qkv", qkv}, {"attn_mask", attn_mask}, {"out", out}, {"statistics", statistics}}, gradient);
  return out;
}

}}  // namespace tandem::v0
