#include <limits>

#include <tandem/ops/attention/attention_pass.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random/random_kernels.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

Tensor transposed(const Tensor& tensor) { return tensor.transpose(-2, -1); }

/// A head per query's head; recorded.
Tensor repeated(const Tensor& tensor, int64_t group) {
  return group == 1 ? tensor : tensor.repeat_interleave(group, -3);
}
/// The sum of the gradients of each group; recorded.
Tensor group_sum(const Tensor& grad, int64_t group) {
  return group == 1 ? grad : grad.unflatten(-3, {-1, group}).sum({-3});
}

/// The softmax weights [..., T, S]; rows without keys are zeros. `key` has a head per query's head.
Tensor weights_of(const AttentionInputs& in, const Tensor& key, const Tensor& statistics) {
  const Tensor &query = in.query, &attn_mask = in.attn_mask;
  const AttentionAttributes& attributes = in.attributes;
  Tensor scores = mul(matmul(query, transposed(key)), attributes.scale);
  if (attn_mask.defined()) {
    scores =
        attn_mask.dtype() == kBool ? where(attn_mask, scores, kMasked) : add(scores, to(attn_mask, scores.dtype()));
  }
  const bool has_begin = attributes.band_begin > -AttentionSizes::kUnlimited;
  const Tensor keys = arange(0, key.size(-2), 1, query.device());
  const Tensor queries = arange(0, query.size(-2), 1, query.device()).unsqueeze(1);
  if (attributes.band_end < AttentionSizes::kUnlimited) {
    scores = where(lt(keys, add(queries, attributes.band_end)), scores, kMasked);
  }
  if (has_begin) scores = where(ge(keys, add(queries, attributes.band_begin)), scores, kMasked);
  if (!attn_mask.defined() && !has_begin) return softmax(scores, -1);
  // The softmax of a row of -infinities is NaN, so such rows are computed on zeros and masked afterwards.
  Shape rows = query.shape();
  rows.back() = 1;
  const Tensor empty_rows = eq(statistics.select(0, -1).view(rows), kMasked);
  return where(empty_rows, 0, softmax(where(empty_rows, 0, scores), -1));
}

/// `weights` multiplied by the factors of dropout: 0 or scale.
Tensor with_dropout(const Tensor& weights, const AttentionDropout& dropout) {
  if (dropout.threshold == 0) return weights;
  const Tensor one = ones(weights.shape(), weights.options()), factors = empty(weights.shape(), weights.options());
  TANDEM_KERNEL(kernel_context(weights.device()), dropout, weights.dtype(), dropout.state, dropout.threshold,
                dropout.scale, weights.numel(), one.data_ptr(), factors.data_ptr());
  return mul(weights, factors);
}

}  // namespace

Tensor composed_attention(const AttentionInputs& in, const Tensor& statistics) {
  const int64_t group = in.attributes.group;
  const Tensor weights = weights_of(in, repeated(in.key, group), statistics);
  return matmul(with_dropout(weights, in.attributes.dropout), repeated(in.value, group));
}

TensorList composed_backward(const AttentionInputs& in, const Tensor& statistics, const Tensor& grad) {
  const int64_t group = in.attributes.group;
  const Tensor key = repeated(in.key, group), value = repeated(in.value, group);
  const Tensor weights = weights_of(in, key, statistics);
  const Tensor weights_grad = with_dropout(matmul(grad, transposed(value)), in.attributes.dropout);
  const Tensor errors =
      mul(mul(weights, sub(weights_grad, mul(weights, weights_grad).sum({-1}, true))), in.attributes.scale);
  return {matmul(errors, key), group_sum(matmul(transposed(errors), in.query), group),
          group_sum(matmul(transposed(with_dropout(weights, in.attributes.dropout)), grad), group)};
}

}}}  // namespace tandem::v0::ops
