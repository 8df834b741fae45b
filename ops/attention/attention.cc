#include <tandem/ops/attention.h>

#include <algorithm>

#include <tandem/ops/attention/attention_pass.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

/// Checks the shapes and broadcasts the leading dimensions, as views. Returns the number of query's heads per head of
/// key and value.
int64_t match_shapes(const Call& call, Tensor& query, Tensor& key, Tensor& value, bool enable_gqa) {
  const int64_t kept = enable_gqa ? 3 : 2;  // dimensions that do not broadcast
  call.require(query.dim() >= kept && key.dim() >= kept && value.dim() >= kept,
               "query, key and value must have at least ", kept, " dimensions");
  call.require(key.size(-1) == query.size(-1), "query and key have different head sizes, ", query.size(-1), " and ",
               key.size(-1));
  call.require(key.size(-2) == value.size(-2), "key and value have different lengths, ", key.size(-2), " and ",
               value.size(-2));
  int64_t group = 1;
  if (enable_gqa) {
    const int64_t heads = query.size(-3), shared = key.size(-3);
    call.require(value.size(-3) == shared && shared > 0 && heads > 0 && heads % shared == 0,
                 "the heads of key and value, ", shared, " and ", value.size(-3), ", must be equal and divide the ",
                 heads, " heads of query");
    group = heads / shared;
  }
  Shape batch(static_cast<size_t>(std::max({query.dim(), key.dim(), value.dim()}) - kept), 1);
  for (const Tensor* tensor : {&query, &key, &value}) {
    for (int64_t d = 1; d <= tensor->dim() - kept; ++d) {
      int64_t& size = batch[batch.size() - static_cast<size_t>(d)];
      const int64_t own = tensor->size(-kept - d);
      call.require(own == size || own == 1 || size == 1, "sizes differ in dimension ", batch.dim() - d);
      if (size == 1) size = own;
    }
  }
  for (Tensor* tensor : {&query, &key, &value}) {
    Shape shape = batch;
    for (int64_t d = -kept; d < 0; ++d) shape.push_back(tensor->size(d));
    if (shape != tensor->shape()) *tensor = tensor->expand(shape);
  }
  return group;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query_argument, const Tensor& key_argument,
                                    const Tensor& value_argument, const AttentionOptions& options) {
  constexpr const char* kName = "scaled_dot_product_attention";
  Tensor query = query_argument, key = key_argument, value = value_argument;
  const Tensor& attn_mask = options.attn_mask;
  const Call call(kName, CastPolicy::kLowPrecision,
                  {{"query", &query}, {"key", &key}, {"value", &value}, {"attn_mask", attn_mask, kOptional}});
  check_same_dtype(kName, {{"query", query}, {"key", key}, {"value", value}});
  check_floating(kName, {"query", query});
  const int64_t group = match_shapes(call, query, key, value, options.enable_gqa);
  if (attn_mask.defined()) check_attention_mask(call, attn_mask, scores_shape(query, key));
  const AttentionInputs inputs{
      query, key, value, attn_mask,
      attention_attributes(kName, options, scores_shape(query, key), query.size(-1), group, query.device())};

  Shape shape = query.shape();
  shape.back() = value.size(-1);
  const Tensor out = empty_in_order(query, shape, query.dtype());
  const Tensor statistics = attention_forward(inputs, out);
  if (attn_mask.defined() && autograd::should_record(attn_mask)) {
    return composed_attention(inputs, statistics);
  }
  const auto gradients = [attributes = inputs.attributes](
                             BackwardContext& context, const SavedTensor& q, const SavedTensor& k, const SavedTensor& v,
                             const SavedTensor& mask, const SavedTensor& result, const SavedTensor& sums) {
    const AttentionInputs in{q.get(), k.get(), v.get(), mask.get(), attributes};
    TensorList grads(3);
    if (context.create_graph()) {
      grads = composed_backward(in, sums.get(), context.grad());
    } else {
      size_t i = 0;
      for (const Tensor& x : {in.query, in.key, in.value}) grads[i++] = empty_in_order(x, x.shape(), x.dtype());
      attention_backward(in, result.get(), sums.get(), context.grad(), &grads[0]);
    }
    clear_unneeded(context, grads);
    return grads;
  };
  record_gradient(kName, out, {&query, &key, &value},
                  {{"query", query},
                   {"key", key},
                   {"value", value},
                   {"attn_mask", attn_mask},
                   {"out", out},
                   {"statistics", statistics}},
                  gradients);
  return out;
}

}}  // namespace tandem::v0
