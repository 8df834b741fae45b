#include <tandem/ops/attention/attention_pass.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <tandem/base/math.h>
#include <tandem/base/trace.h>
#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 {

int attention_statistics(const KernelContext& context, DType dtype, bool has_mask) {
  return !context.device.is_cpu() && ops::is_half(dtype) && !has_mask ? 1 : 2;
}

namespace ops {

AttentionAttributes attention_attributes(const char* op, const AttentionOptions& options, const Shape& scores,
                                         int64_t head_dim, int64_t group, Device device) {
  const auto& [left, right] = options.window;
  const double p = options.dropout_p;
  TANDEM_CHECK(ValueError, p >= 0 && p <= 1, op, ": dropout_p is ", p, ", expected 0 <= dropout_p <= 1");
  TANDEM_CHECK(ValueError, left >= -1 && right >= -1, op, ": window is {", left, ", ", right,
               "}, expected limits of at least -1");
  TANDEM_CHECK(ValueError, options.query_offset >= 0, op, ": query_offset is ", options.query_offset,
               ", expected at least 0");

  AttentionAttributes attributes;
  attributes.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, head_dim))));
  attributes.group = group;
  // Removes a limit that excludes no key, so that more problems need no limits.
  const int64_t queries = scores[scores.size() - 2], keys = scores.back();
  const int64_t last = options.is_causal ? 0 : right >= 0 ? right : AttentionSizes::kUnlimited;
  const int64_t end = saturating_add(options.query_offset, std::min(last, keys) + 1);
  if (end < keys) attributes.band_end = end;
  const int64_t begin = left < 0 ? -queries : std::min(options.query_offset - left, keys);
  if (queries - 1 + begin > 0) attributes.band_begin = begin;
  if (p > 0) {
    Generator& generator = options.generator != nullptr ? *options.generator : default_generator(device);
    attributes.dropout = {generator.reserve(num_elements(scores), device),
                          static_cast<uint64_t>(std::llround(p * 0x1p32)), p == 1 ? 0 : 1 / (1 - p)};
    attributes.step_block = cuda::step_block(device);
  }
  return attributes;
}

Shape scores_shape(const Tensor& query, const Tensor& key) {
  Shape shape = query.shape();
  shape.back() = key.size(-2);
  return shape;
}

void check_attention_mask(const Call& call, const Tensor& mask, const Shape& scores) {
  call.require<DTypeError>(mask.dtype() == kBool || is_floating_point(mask.dtype()),
                           "attn_mask must be bool or floating");
  bool fits = mask.dim() <= scores.dim();
  for (int64_t d = 1; fits && d <= mask.dim(); ++d) {
    fits = mask.size(-d) == 1 || mask.size(-d) == scores[static_cast<size_t>(scores.dim() - d)];
  }
  call.require(fits, "attn_mask does not broadcast to the scores' shape ", scores);
}

Tensor empty_in_order(const Tensor& like, const Shape& shape, DType dtype) {
  const size_t dims = shape.size();
  std::vector<size_t> order(dims - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto step_of = [&](size_t d) {  // dimensions that `like` repeats come first
    return like.strides()[d] == 0 ? std::numeric_limits<int64_t>::max() : like.strides()[d];
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return step_of(a) > step_of(b); });
  Shape strides(dims, 1);
  int64_t step = std::max<int64_t>(1, shape.back());
  for (size_t i = dims - 1; i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(1, shape[order[i]]);
  }
  const Tensor memory = empty(shape, {dtype, like.device()});
  return make_view(memory.storage(), dtype, shape, strides, memory.impl().offset);
}

Tensor dense_rows(const Tensor& tensor, DType dtype) {
  const bool has_dense_rows = tensor.strides().back() == 1 || tensor.shape().back() <= 1;
  const bool has_one_row = tensor.strides()[tensor.shape().size() - 2] == 0;
  if (tensor.dtype() == dtype && has_dense_rows && !has_one_row) return tensor;
  const Tensor copy = empty(tensor.shape(), {dtype, tensor.device()});
  primitives::copy(tensor, copy);
  return copy;
}

namespace {

/// Strides of a tensor [..., H, rows, columns] as [..., H / group, group, rows, columns]; of a shared tensor, which has
/// a head per group, as [..., H, group, rows, columns], each head repeated.
Shape grouped_strides(Shape strides, int64_t group, bool is_shared) {
  if (group == 1) return strides;
  const size_t heads = strides.size() - 3;
  const int64_t step = strides[heads];
  if (!is_shared) strides[heads] *= group;
  strides.insert(heads + 1, is_shared ? 0 : step);
  return strides;
}

/// An argument of kernels, with strides as `batch_shape`.
struct Rows {
  Rows(const Rows&) = delete;  // `rows` refers to `strides`
  Rows(const Tensor& tensor, int64_t group, bool is_shared)
      : strides(grouped_strides(tensor.strides(), group, is_shared)), rows{tensor.data_ptr(), strides} {}
  Shape strides;
  AttentionTensor rows;
};

/// The leading dimensions of the kernels' arguments.
Shape batch_shape(const Tensor& query, int64_t group) {
  Shape shape(std::span<const int64_t>(query.shape().begin(), query.shape().size() - 2));
  if (group > 1) {
    shape.back() /= group;
    shape.push_back(group);
  }
  return shape;
}

/// The argument of kernels for a mask, which may be undefined; holds its strides and, for CPU kernels of another dtype,
/// a copy.
struct Mask {
  Mask(const Mask&) = delete;  // mask.tensor refers to `strides`
  Mask(const KernelContext& context, const Tensor& argument, const Shape& scores, DType dtype, int64_t group) {
    if (!argument.defined()) return;
    tensor = context.device.is_cpu() && argument.dtype() != kBool ? converted(argument, dtype) : argument;
    strides = grouped_strides(broadcast_strides(tensor, scores), group, /*is_shared=*/false);
    mask = {{tensor.data_ptr(), strides}, tensor.dtype()};
  }
  Tensor tensor;
  Shape strides;
  AttentionMask mask;
};

AttentionSizes sizes_of(const Tensor& query, const Tensor& key, const Tensor& value,
                        const AttentionAttributes& attributes) {
  int64_t batches = 1;
  for (size_t d = 0; d + 2 < query.shape().size(); ++d) batches *= query.shape()[d];
  return {batches,          query.size(-2),        key.size(-2),        query.size(-1),  value.size(-1),
          attributes.scale, attributes.band_begin, attributes.band_end, attributes.group};
}

/// Floating-point operations of multiplying the scores of a band by rows of `width`; half of all under a causal mask.
int64_t num_flops(const AttentionSizes& sizes, int64_t width) {
  const int64_t keys = std::min(sizes.keys, sizes.band_end - sizes.band_begin);
  return 2 * sizes.batches * sizes.queries * keys * width / (sizes.is_causal() ? 2 : 1);
}

}  // namespace

Tensor attention_forward(const AttentionInputs& in, const Tensor& out) {
  const KernelContext context = kernel_context(out.device());
  const DType dtype = kernel_dtype(context, out.dtype());
  const Tensor query = dense_rows(in.query, dtype), key = dense_rows(in.key, dtype);
  const Tensor value = dense_rows(in.value, dtype);
  const Tensor result = out.dtype() == dtype ? out : empty_in_order(out, out.shape(), dtype);
  const AttentionSizes sizes = sizes_of(query, key, value, in.attributes);
  const Tensor statistics =
      empty({attention_statistics(context, dtype, in.attn_mask.defined()), sizes.batches, sizes.queries},
            {compute_dtype(dtype), query.device()});
  const int64_t group = sizes.group;
  const Shape batches = batch_shape(query, group);
  const Mask mask(context, in.attn_mask, scores_shape(query, key), dtype, group);
  const Rows q(query, group, false), k(key, group, true), v(value, group, true), y(result, group, false);
  const AttentionCall call{
      dtype, batches, sizes, q.rows, k.rows, v.rows, mask.mask, y.rows, statistics.data_ptr(), in.attributes.dropout};
  const Tensor scratch = scratch_memory(TANDEM_KERNEL(context, attention_workspace_bytes, call), query.device());
  trace_work(num_flops(sizes, sizes.head_dim + sizes.value_dim));
  TANDEM_KERNEL(context, attention, call, data_or_null(scratch));
  if (!result.is_same(out)) primitives::copy(result, out);
  return statistics;
}

void attention_backward(const AttentionInputs& in, const Tensor& out_argument, const Tensor& statistics,
                        const Tensor& grad_argument, const Tensor* grads) {
  const KernelContext context = kernel_context(out_argument.device());
  const DType dtype = kernel_dtype(context, out_argument.dtype());
  const Tensor query = dense_rows(in.query, dtype), key = dense_rows(in.key, dtype);
  const Tensor value = dense_rows(in.value, dtype), out = dense_rows(out_argument, dtype);
  const Tensor grad = dense_rows(grad_argument, dtype);
  Tensor results[3];
  for (int i = 0; i < 3; ++i) {
    results[i] = grads[i].dtype() == dtype ? grads[i] : empty_in_order(grads[i], grads[i].shape(), dtype);
  }
  const AttentionSizes sizes = sizes_of(query, key, value, in.attributes);
  const int64_t group = sizes.group;
  const Shape batches = batch_shape(query, group);
  const Mask mask(context, in.attn_mask, scores_shape(query, key), dtype, group);
  const Rows q(query, group, false), k(key, group, true), v(value, group, true), y(out, group, false);
  const Rows dy(grad, group, false), dq(results[0], group, false), dk(results[1], group, true),
      dv(results[2], group, true);
  const AttentionCall call{
      dtype, batches, sizes, q.rows, k.rows, v.rows, mask.mask, y.rows, statistics.data_ptr(), in.attributes.dropout};
  const AttentionGradients gradients{dy.rows, dq.rows, dk.rows, dv.rows};
  const Tensor scratch =
      scratch_memory(TANDEM_KERNEL(context, attention_backward_workspace_bytes, call, gradients), query.device());
  trace_work(num_flops(sizes, 3 * sizes.head_dim + 2 * sizes.value_dim));
  TANDEM_KERNEL(context, attention_backward, call, gradients, data_or_null(scratch));
  for (int i = 0; i < 3; ++i) {
    if (!results[i].is_same(grads[i])) primitives::copy(results[i], grads[i]);
  }
}

}  // namespace ops
}}  // namespace tandem::v0
