#include <tandem/ops/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

/// The options as saved by a node, with the default scale resolved.
struct Attributes {
  bool is_causal = false;
  double scale = 1;
};

Attributes attributes_of(const AttentionOptions& options, int64_t head_dim) {
  return {options.is_causal,
          options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, head_dim))))};
}

/// The shape [..., T, S] of the scores of queries [..., T, d] and keys [..., S, d].
Shape scores_shape(const Tensor& query, const Tensor& key) {
  Shape shape = query.shape();
  shape.back() = key.size(-2);
  return shape;
}

void check_mask(const char* op, const Tensor& mask, const Shape& scores, Operands operands) {
  TANDEM_CHECK(DTypeError, mask.dtype() == kBool || is_floating_point(mask.dtype()),
               operand_error(op, "attn_mask must be bool or floating", operands));
  bool fits = mask.dim() <= scores.dim();
  for (int64_t d = 1; fits && d <= mask.dim(); ++d) {
    fits = mask.size(-d) == 1 || mask.size(-d) == scores[static_cast<size_t>(scores.dim() - d)];
  }
  TANDEM_CHECK(ShapeError, fits,
               operand_error(op, str("attn_mask does not broadcast to the scores' shape ", scores), operands));
}

/// An uninitialized dense tensor. All dimensions except the last have the memory order of `like`.
Tensor empty_in_order(const Tensor& like, const Shape& shape, DType dtype) {
  const size_t dims = shape.size();
  std::vector<size_t> order(dims - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return like.strides()[a] > like.strides()[b]; });
  Shape strides(dims, 1);
  int64_t step = std::max<int64_t>(1, shape.back());
  for (size_t i = dims - 1; i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(1, shape[order[i]]);
  }
  const Tensor memory = empty(shape, {dtype, like.device()});
  return make_view(memory.storage(), dtype, shape, strides, memory.impl().offset);
}

/// The tensor as kernels require it: of `dtype`, with a dense last dimension and rows that do not share memory; copied
/// if necessary.
Tensor dense_rows(const Tensor& tensor, DType dtype) {
  const bool has_dense_rows = tensor.strides().back() == 1 || tensor.shape().back() <= 1;
  const bool has_one_row = tensor.strides()[tensor.shape().size() - 2] == 0;
  if (tensor.dtype() == dtype && has_dense_rows && !has_one_row) return tensor;
  const Tensor copy = empty(tensor.shape(), {dtype, tensor.device()});
  primitives::copy(tensor, copy);
  return copy;
}

DType compute_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// The dtype of the kernels for tensors of `dtype`: the CPU's kernels have no half types.
DType kernel_dtype(const KernelContext& context, DType dtype) {
  return context.device.is_cpu() ? compute_dtype(dtype) : dtype;
}

AttentionTensor rows(const Tensor& tensor) { return {tensor.data_ptr(), tensor.strides()}; }

std::span<const int64_t> batch_shape(const Tensor& query) { return {query.shape().begin(), query.shape().size() - 2}; }

/// The argument of kernels for a mask, which may be undefined; holds its strides and, for CPU kernels of another dtype,
/// a copy.
struct Mask {
  Mask(const Mask&) = delete;  // mask.tensor refers to `strides`
  Mask(const KernelContext& context, const Tensor& argument, const Shape& scores, DType dtype) {
    if (!argument.defined()) return;
    tensor = argument;
    if (context.device.is_cpu() && tensor.dtype() != kBool && tensor.dtype() != dtype) {
      tensor = empty(argument.shape(), {dtype, argument.device()});
      primitives::copy(argument, tensor);
    }
    strides = broadcast_strides(tensor, scores);
    mask = {{tensor.data_ptr(), strides}, tensor.dtype()};
  }
  Tensor tensor;
  Shape strides;
  AttentionMask mask;
};

AttentionSizes sizes_of(const Tensor& query, const Tensor& key, const Tensor& value, const Attributes& attributes) {
  int64_t batches = 1;
  for (size_t d = 0; d + 2 < query.shape().size(); ++d) batches *= query.shape()[d];
  return {batches,        query.size(-2),   key.size(-2),        query.size(-1),
          value.size(-1), attributes.scale, attributes.is_causal};
}

/// Floating-point operations of multiplying a matrix of the scores' size by rows of `width`; half of them under a
/// causal mask.
int64_t num_flops(const AttentionSizes& sizes, int64_t width) {
  return 2 * sizes.batches * sizes.queries * sizes.keys * width / (sizes.is_causal ? 2 : 1);
}

/// Writes the result; returns the kernel's statistics.
Tensor forward(const Tensor& query_argument, const Tensor& key_argument, const Tensor& value_argument,
               const Tensor& attn_mask, const Attributes& attributes, const Tensor& out) {
  const KernelContext context = kernel_context(out.device());
  const DType dtype = kernel_dtype(context, out.dtype());
  const Tensor query = dense_rows(query_argument, dtype), key = dense_rows(key_argument, dtype);
  const Tensor value = dense_rows(value_argument, dtype);
  const Tensor result = out.dtype() == dtype ? out : empty_in_order(out, out.shape(), dtype);
  const AttentionSizes sizes = sizes_of(query, key, value, attributes);
  const Tensor statistics =
      empty({attention_statistics(context, dtype, attn_mask.defined()), sizes.batches, sizes.queries},
            {compute_dtype(dtype), query.device()});
  const Mask mask(context, attn_mask, scores_shape(query, key), dtype);
  const AttentionCall call{dtype,       batch_shape(query), sizes,        rows(query),          rows(key),
                           rows(value), mask.mask,          rows(result), statistics.data_ptr()};
  const Tensor scratch = scratch_memory(TANDEM_KERNEL(context, attention_workspace_bytes, call), query.device());
  trace_work(num_flops(sizes, sizes.head_dim + sizes.value_dim));
  TANDEM_KERNEL(context, attention, call, data_or_null(scratch));
  if (!result.is_same(out)) primitives::copy(result, out);
  return statistics;
}

/// The gradients of query, key and value, written into grads[0 .. 2].
void backward(const Tensor& query_argument, const Tensor& key_argument, const Tensor& value_argument,
              const Tensor& attn_mask, const Attributes& attributes, const Tensor& out_argument,
              const Tensor& statistics, const Tensor& grad_argument, const Tensor* grads) {
  const KernelContext context = kernel_context(out_argument.device());
  const DType dtype = kernel_dtype(context, out_argument.dtype());
  const Tensor query = dense_rows(query_argument, dtype), key = dense_rows(key_argument, dtype);
  const Tensor value = dense_rows(value_argument, dtype), out = dense_rows(out_argument, dtype);
  const Tensor grad = dense_rows(grad_argument, dtype);
  Tensor results[3];
  for (int i = 0; i < 3; ++i) {
    results[i] = grads[i].dtype() == dtype ? grads[i] : empty_in_order(grads[i], grads[i].shape(), dtype);
  }
  const AttentionSizes sizes = sizes_of(query, key, value, attributes);
  const Mask mask(context, attn_mask, scores_shape(query, key), dtype);
  const AttentionCall call{dtype,       batch_shape(query), sizes,     rows(query),          rows(key),
                           rows(value), mask.mask,          rows(out), statistics.data_ptr()};
  const AttentionGradients gradients{rows(grad), rows(results[0]), rows(results[1]), rows(results[2])};
  const Tensor scratch =
      scratch_memory(TANDEM_KERNEL(context, attention_backward_workspace_bytes, call, gradients), query.device());
  trace_work(num_flops(sizes, 3 * sizes.head_dim + 2 * sizes.value_dim));
  TANDEM_KERNEL(context, attention_backward, call, gradients, data_or_null(scratch));
  for (int i = 0; i < 3; ++i) {
    if (!results[i].is_same(grads[i])) primitives::copy(results[i], grads[i]);
  }
}

Tensor transposed(const Tensor& tensor) { return tensor.transpose(-2, -1); }

/// The softmax weights, composed of operations, [..., T, S]; rows without keys are zeros.
Tensor composed_weights(const Tensor& query, const Tensor& key, const Tensor& attn_mask, const Attributes& attributes,
                        const Tensor& statistics) {
  const Shape shape = scores_shape(query, key);
  Tensor scores = mul(matmul(query, transposed(key)), attributes.scale);
  if (attn_mask.defined()) {
    scores =
        attn_mask.dtype() == kBool ? where(attn_mask, scores, kNoScore) : add(scores, to(attn_mask, scores.dtype()));
  }
  if (attributes.is_causal) {
    const Device device = query.device();
    const Tensor queries = arange(0, query.size(-2), 1, device).unsqueeze(1);
    scores = where(le(arange(0, key.size(-2), 1, device).unsqueeze(0), queries), scores, kNoScore);
  }
  if (!attn_mask.defined()) return softmax(scores, -1);
  // The softmax of a row of -infinities is NaN, so such rows are computed on zeros and masked afterwards.
  Shape rows = shape;
  rows.back() = 1;
  const Tensor empty_rows = eq(statistics.select(0, 1).view(rows), kNoScore);
  return where(empty_rows, 0, softmax(where(empty_rows, 0, scores), -1));
}

/// The gradients of query, key and value, composed of operations.
TensorList composed_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask,
                             const Attributes& attributes, const Tensor& statistics, const Tensor& grad) {
  const Tensor weights = composed_weights(query, key, attn_mask, attributes, statistics);
  const Tensor weights_grad = matmul(grad, transposed(value));
  const Tensor errors =
      mul(mul(weights, sub(weights_grad, mul(weights, weights_grad).sum({-1}, true))), attributes.scale);
  return {matmul(errors, key), matmul(transposed(errors), query), matmul(transposed(weights), grad)};
}

void check_qkv(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, Operands operands) {
  TANDEM_CHECK(ShapeError, query.dim() >= 2 && key.dim() == query.dim() && value.dim() == query.dim(),
               operand_error(op, "query, key and value must have the same number of dimensions, at least 2", operands));
  for (int64_t d = 0; d < query.dim() - 2; ++d) {
    TANDEM_CHECK(ShapeError, key.size(d) == query.size(d) && value.size(d) == query.size(d),
                 operand_error(op, str("sizes differ in dimension ", d), operands));
  }
  TANDEM_CHECK(
      ShapeError, key.size(-1) == query.size(-1),
      operand_error(op, str("query and key have different head sizes, ", query.size(-1), " and ", key.size(-1)),
                    operands));
  TANDEM_CHECK(ShapeError, key.size(-2) == value.size(-2),
               operand_error(op, str("key and value have different lengths, ", key.size(-2), " and ", value.size(-2)),
                             operands));
}

}  // namespace

int attention_statistics(const KernelContext& context, DType dtype, bool has_mask) {
  return !context.device.is_cpu() && is_half(dtype) && !has_mask ? 1 : 2;
}

Tensor scaled_dot_product_attention(const Tensor& query_argument, const Tensor& key_argument,
                                    const Tensor& value_argument, const AttentionOptions& options) {
  constexpr const char* kName = "scaled_dot_product_attention";
  Tensor query = query_argument, key = key_argument, value = value_argument;
  const Tensor& attn_mask = options.attn_mask;
  cast_for(CastPolicy::kLowPrecision, {&query, &key, &value});
  const auto check = [&](Operands operands) {
    KernelContext context = check_same_device(kName, operands);
    check_same_dtype(kName, {{"query", query}, {"key", key}, {"value", value}});
    check_floating(kName, {"query", query});
    check_qkv(kName, query, key, value, operands);
    if (attn_mask.defined()) check_mask(kName, attn_mask, scores_shape(query, key), operands);
    return context;
  };
  const KernelContext kernels =
      attn_mask.defined() ? check({{"query", query}, {"key", key}, {"value", value}, {"attn_mask", attn_mask}})
                          : check({{"query", query}, {"key", key}, {"value", value}});
  const Attributes attributes = attributes_of(options, query.size(-1));

  Shape shape = query.shape();
  shape.back() = value.size(-1);
  const Tensor out = empty_in_order(query, shape, query.dtype());
  const Tensor statistics = forward(query, key, value, attn_mask, attributes, out);
  if (attn_mask.defined() && autograd::should_record(attn_mask)) {
    return matmul(composed_weights(query, key, attn_mask, attributes, statistics), value);
  }

  struct AttentionNode : Node {
    SavedTensor query{*this, "query"}, key{*this, "key"}, value{*this, "value"}, attn_mask{*this, "attn_mask"};
    SavedTensor out{*this, "out"}, statistics{*this, "statistics"};
    Attributes attributes;

    TensorList backward(BackwardContext& context) override {
      const Tensor q = query.get(), k = key.get(), v = value.get(), mask = attn_mask.get();
      TensorList grads(3);
      if (context.create_graph()) {
        grads = composed_backward(q, k, v, mask, attributes, statistics.get(), context.grad());
      } else {
        const Tensor results[] = {empty_in_order(q, q.shape(), q.dtype()), empty_in_order(k, k.shape(), k.dtype()),
                                  empty_in_order(v, v.shape(), v.dtype())};
        v0::backward(q, k, v, mask, attributes, out.get(), statistics.get(), context.grad(), results);
        for (size_t i = 0; i < 3; ++i) grads[i] = results[i];
      }
      for (int i = 0; i < 3; ++i) {
        if (!context.needs(i)) grads[static_cast<size_t>(i)] = Tensor();
      }
      return grads;
    }
  };
  if (auto* node = autograd::record<AttentionNode>(kName, out, query, key, value)) {
    node->query.save(query);
    node->key.save(key);
    node->value.save(value);
    node->attn_mask.save(attn_mask);
    node->out.save(out);
    node->statistics.save(statistics);
    node->attributes = attributes;
  }
  return out;
}

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
  const auto check = [&](Operands operands) {
    KernelContext context = check_same_device(kName, operands);
    check_floating(kName, {"qkv", qkv});
    TANDEM_CHECK(ValueError, num_heads >= 1,
                 operand_error(kName, str("num_heads is ", num_heads, ", must be at least 1"), operands));
    TANDEM_CHECK(ShapeError, qkv.dim() >= 2, operand_error(kName, "qkv must have at least 2 dimensions", operands));
    TANDEM_CHECK(ShapeError, qkv.size(-1) % (3 * num_heads) == 0,
                 operand_error(kName, str("the last dimension must be a multiple of 3 * ", num_heads), operands));
    if (attn_mask.defined()) {
      Shape scores = qkv.shape();
      scores.back() = qkv.size(-2);
      scores.insert(scores.size() - 2, num_heads);
      check_mask(kName, attn_mask, scores, operands);
    }
    return context;
  };
  const KernelContext kernels =
      attn_mask.defined() ? check({{"qkv", qkv}, {"attn_mask", attn_mask}}) : check({{"qkv", qkv}});
  const int64_t width = qkv.size(-1) / 3;
  const Attributes attributes = attributes_of(options, width / num_heads);
  if (attn_mask.defined() && autograd::should_record(attn_mask)) {
    return join_heads(scaled_dot_product_attention(part_of(qkv, num_heads, 0), part_of(qkv, num_heads, 1),
                                                   part_of(qkv, num_heads, 2), options));
  }

  const Tensor dense = row_major(qkv);
  Shape shape = qkv.shape();
  shape.back() = width;
  const Tensor out = empty(shape, qkv.options());
  const Tensor statistics =
      forward(plain_part_of(dense, num_heads, 0), plain_part_of(dense, num_heads, 1),
              plain_part_of(dense, num_heads, 2), attn_mask, attributes, split_heads(out, num_heads));

  struct QkvAttentionNode : Node {
    SavedTensor qkv{*this, "qkv"}, attn_mask{*this, "attn_mask"}, out{*this, "out"}, statistics{*this, "statistics"};
    Attributes attributes;
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
      v0::backward(plain_part_of(input, num_heads, 0), plain_part_of(input, num_heads, 1),
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
