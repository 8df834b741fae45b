// Attention of heads whose queries, keys and values come from one projection.
#include <tandem/base/math.h>
#include <tandem/ops/attention.h>

#include <tandem/ops/attention/attention_pass.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// Part `part` of qkv [..., T, 3 * H * d] as [..., H, T, d], recorded.
Tensor part_of(const Tensor& qkv, int64_t num_heads, int part) {
  const int64_t width = qkv.size(-1) / 3;
  Shape shape = qkv.shape();
  shape.back() = num_heads;
  shape.push_back(width / num_heads);
  return qkv.slice(-1, part * width, (part + 1) * width).view(shape).transpose(-3, -2);
}

/// part_of for a row-major tensor that is not in the graph.
Tensor plain_part_of(const Tensor& qkv, int64_t num_heads, int part) {
  NoGradGuard no_grad;
  return part_of(qkv, num_heads, part);
}

/// [..., T, H * d] viewed as [..., H, T, d], or the inverse; recorded.
Tensor split_heads(const Tensor& tensor, int64_t num_heads) {
  Shape shape = tensor.shape();
  shape.back() = num_heads;
  shape.push_back(tensor.size(-1) / num_heads);
  return tensor.view(shape).transpose(-3, -2);
}
Tensor join_heads(const Tensor& tensor) { return tensor.transpose(-3, -2).flatten(-2); }

}  // namespace

Tensor qkv_attention(const Tensor& qkv_argument, int64_t num_heads, const AttentionOptions& options) {
  constexpr const char* kName = "qkv_attention";
  Tensor qkv = qkv_argument;
  const Tensor& attn_mask = options.attn_mask;
  cast_for(CastPolicy::kLowPrecision, {&qkv});
  Shape scores;
  const auto check = [&](Operands operands) {
    KernelContext context = check_same_device(kName, operands);
    check_floating(kName, {"qkv", qkv});
    TANDEM_CHECK(ValueError, !options.enable_gqa,
                 operand_error(kName,
                               "enable_gqa is set, but qkv has a key and a value for each head; pass them to "
                               "scaled_dot_product_attention",
                               operands));
    TANDEM_CHECK(ValueError, num_heads >= 1,
                 operand_error(kName, str("num_heads is ", num_heads, ", must be at least 1"), operands));
    TANDEM_CHECK(ShapeError, qkv.dim() >= 2, operand_error(kName, "qkv must have at least 2 dimensions", operands));
    TANDEM_CHECK(ShapeError, qkv.size(-1) % saturating_mul(3, num_heads) == 0,
                 operand_error(kName, str("the last dimension must be a multiple of 3 * ", num_heads), operands));
    scores = qkv.shape();
    scores.back() = qkv.size(-2);
    scores.insert(scores.size() - 2, num_heads);
    if (attn_mask.defined()) check_attention_mask(kName, attn_mask, scores, operands);
    return context;
  };
  const KernelContext kernels =
      attn_mask.defined() ? check({{"qkv", qkv}, {"attn_mask", attn_mask}}) : check({{"qkv", qkv}});
  const int64_t width = qkv.size(-1) / 3;
  if (attn_mask.defined() && autograd::should_record(attn_mask)) {
    return join_heads(scaled_dot_product_attention(part_of(qkv, num_heads, 0), part_of(qkv, num_heads, 1),
                                                   part_of(qkv, num_heads, 2), options));
  }
  const AttentionAttributes attributes =
      attention_attributes(kName, options, scores, width / num_heads, /*group=*/1, qkv.device());

  const Tensor dense = row_major(qkv);
  Shape shape = qkv.shape();
  shape.back() = width;
  const Tensor out = empty(shape, qkv.options());
  const Tensor statistics =
      attention_forward(plain_part_of(dense, num_heads, 0), plain_part_of(dense, num_heads, 1),
                        plain_part_of(dense, num_heads, 2), attn_mask, attributes, split_heads(out, num_heads));

  struct QkvAttentionNode : Node {
    SavedTensor qkv{*this, "qkv"}, attn_mask{*this, "attn_mask"}, out{*this, "out"}, statistics{*this, "statistics"};
    AttentionAttributes attributes;
    int64_t num_heads = 1;

    TensorList backward(BackwardContext& context) override {
      const Tensor saved = qkv.get(), mask = attn_mask.get();
      if (context.create_graph()) {
        const TensorList grads =
            composed_backward(part_of(saved, num_heads, 0), part_of(saved, num_heads, 1), part_of(saved, num_heads, 2),
                              mask, attributes, statistics.get(), split_heads(context.grad(), num_heads));
        return {cat({join_heads(grads[0]), join_heads(grads[1]), join_heads(grads[2])}, -1)};
      }
      const Tensor input = row_major(saved), grad = row_major(context.grad());
      const Tensor result = empty(input.shape(), input.options());
      const Tensor parts[] = {plain_part_of(result, num_heads, 0), plain_part_of(result, num_heads, 1),
                              plain_part_of(result, num_heads, 2)};
      attention_backward(plain_part_of(input, num_heads, 0), plain_part_of(input, num_heads, 1),
                         plain_part_of(input, num_heads, 2), mask, attributes, split_heads(out.get(), num_heads),
                         statistics.get(), split_heads(grad, num_heads), parts);
      return {result};
    }
  };
  if (auto* node = autograd::record<QkvAttentionNode>(kName, out, qkv)) {
    node->qkv.save(qkv);
    node->attn_mask.save(attn_mask);
    node->out.save(out);
    node->statistics.save(statistics);
    node->attributes = attributes;
    node->num_heads = num_heads;
  }
  return out;
}

}}  // namespace tandem::v0
