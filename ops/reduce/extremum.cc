#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/reduce/reduction.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using ops::Reduction;

void ops::record_even_gradient(const char* op, const Tensor& out, const Tensor& input, const Shape& dims,
                               const Shape& kept_shape) {
  const auto gradient = [dims, kept_shape](const Tensor& grad, const Tensor& values, const Tensor& output) {
    const Tensor best = reshape(output, kept_shape);
    // If the result is NaN, all NaNs count.
    const Tensor is_best = bitwise_or(eq(values, best), bitwise_and(ne(values, values), ne(best, best)));
    const Tensor count = sum(to(is_best, promote(values.dtype(), kFloat32)), dims, true);
    return where(is_best, div(reshape(grad, kept_shape), to(count, values.dtype())), 0);
  };
  record_gradient(op, out, {&input}, {{"input", input}, {"output", out}}, gradient);
}

namespace {

/// Elements of a chunk of a long sequence.
constexpr int64_t kChunk = 1 << 16;

/// Writes the extrema of a block to `out`. A single long sequence is first reduced in chunks, by several threads or
/// blocks.
void run_extremum(const KernelContext& context, DType dtype, const ReduceSizes& sizes, bool largest,
                  const std::byte* memory, std::byte* out) {
  if (sizes.outer * sizes.inner > 1 || sizes.reduce <= 2 * kChunk) {
    TANDEM_KERNEL(context, extremum, dtype, sizes, largest, memory, out, nullptr);
    return;
  }
  const int64_t chunks = sizes.reduce / kChunk, rest = sizes.reduce % kChunk;
  const Tensor partial = empty({chunks + (rest > 0)}, {dtype, context.device});
  TANDEM_KERNEL(context, extremum, dtype, {chunks, kChunk, 1}, largest, memory, partial.data_ptr(), nullptr);
  if (rest > 0) {
    TANDEM_KERNEL(context, extremum, dtype, {1, rest, 1}, largest, memory + chunks * kChunk * size_of(dtype),
                  partial.data_ptr() + chunks * size_of(dtype), nullptr);
  }
  run_extremum(context, dtype, {1, partial.numel(), 1}, largest, partial.data_ptr(), out);
}

Tensor extremum_of(const char* op, const Tensor& input, const Shape& dims, bool keepdim, bool largest) {
  const ops::Call call(op, {{"input", input}});
  const Reduction reduction = ops::plan_reduction(op, input, dims, keepdim);
  if (reduction.count == 0) {
    if (dims.empty()) call.require(false, "input has no elements");
    call.require(false, "one of dims ", dims, " is empty");
  }
  Tensor out = empty(reduction.shape, input.options());
  if (out.numel() > 0) {
    const ops::BlockView block = ops::arrange(input, reduction);
    run_extremum(call, input.dtype(), block.sizes, largest, block.memory.data_ptr(), out.data_ptr());
  }
  ops::record_even_gradient(op, out, input, dims, reduction.kept_shape);
  return out;
}

/// The extrema along one dimension and their first positions; undefined values unless `wants_values`.
ValuesIndices extremum_along(const char* op, const Tensor& input, int64_t dim, bool keepdim, bool largest,
                             bool wants_values) {
  const ops::Call call(op, {{"input", input}});
  const int64_t wrapped = wrap_dim(op, dim, input.dim());
  const Reduction reduction = ops::plan_reduction(op, input, {wrapped}, keepdim);
  call.require(reduction.count > 0, "dimension ", wrapped, " is empty");
  ValuesIndices out;
  if (wants_values) out.values = empty(reduction.shape, input.options());
  out.indices = empty(reduction.shape, {kInt64, input.device()});
  if (out.indices.numel() > 0) {
    const ops::BlockView block = ops::arrange(input, reduction);
    TANDEM_KERNEL(call, extremum, input.dtype(), block.sizes, largest, block.memory.data_ptr(),
                  wants_values ? out.values.data_ptr() : nullptr, out.indices.data<int64_t>());
  }
  if (wants_values) {
    ops::record_gather(op, out.values, input, wrapped, reshape(out.indices, reduction.kept_shape));
  }
  return out;
}

/// The position of the extremum in row-major order.
Tensor position_of(const char* op, const Tensor& input, bool largest) {
  const ops::Call call(op, {{"input", input}});
  call.require(input.numel() > 0, "input has no elements");
  Tensor out = empty({}, {kInt64, input.device()});
  const Tensor memory = ops::row_major(input);
  TANDEM_KERNEL(call, extremum, input.dtype(), {1, memory.numel(), 1}, largest, memory.data_ptr(), nullptr,
                out.data<int64_t>());
  return out;
}

}  // namespace

Tensor max(const Tensor& input) { return extremum_of("max", input, {}, false, true); }
Tensor min(const Tensor& input) { return extremum_of("min", input, {}, false, false); }
Tensor amax(const Tensor& input, const Shape& dims, bool keepdim) {
  return extremum_of("amax", input, dims, keepdim, true);
}
Tensor amin(const Tensor& input, const Shape& dims, bool keepdim) {
  return extremum_of("amin", input, dims, keepdim, false);
}
ValuesIndices max(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_along("max", input, dim, keepdim, true, true);
}
ValuesIndices min(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_along("min", input, dim, keepdim, false, true);
}
Tensor argmax(const Tensor& input) { return position_of("argmax", input, true); }
Tensor argmin(const Tensor& input) { return position_of("argmin", input, false); }
Tensor argmax(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_along("argmax", input, dim, keepdim, true, false).indices;
}
Tensor argmin(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_along("argmin", input, dim, keepdim, false, false).indices;
}

namespace {

/// The extremum of `input != 0`.
Tensor truth_of(const char* op, const Tensor& input, const Shape& dims, bool keepdim, bool largest) {
  const ops::Call call(op, {{"input", input}});
  const NoGradGuard no_grad;
  const Reduction reduction = ops::plan_reduction(op, input, dims, keepdim);
  const Tensor is_true = input.dtype() == kBool ? input : ne(input, 0);
  const Tensor out = reduction.count == 0 ? full(reduction.shape, !largest, is_true.options())
                                          : extremum_of(op, is_true, dims, keepdim, largest);
  return to(out, input.dtype() == kUInt8 ? kUInt8 : kBool);
}

}  // namespace

Tensor any(const Tensor& input, const Shape& dims, bool keepdim) { return truth_of("any", input, dims, keepdim, true); }
Tensor all(const Tensor& input, const Shape& dims, bool keepdim) {
  return truth_of("all", input, dims, keepdim, false);
}

Tensor Tensor::max() const { return tandem::max(*this); }
Tensor Tensor::min() const { return tandem::min(*this); }
Tensor Tensor::max(const Tensor& other) const { return tandem::max(*this, other); }
Tensor Tensor::min(const Tensor& other) const { return tandem::min(*this, other); }
ValuesIndices Tensor::max(int64_t dim, bool keepdim) const { return tandem::max(*this, dim, keepdim); }
ValuesIndices Tensor::min(int64_t dim, bool keepdim) const { return tandem::min(*this, dim, keepdim); }
Tensor Tensor::amax(const Shape& dims, bool keepdim) const { return tandem::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Shape& dims, bool keepdim) const { return tandem::amin(*this, dims, keepdim); }
Tensor Tensor::argmax() const { return tandem::argmax(*this); }
Tensor Tensor::argmin() const { return tandem::argmin(*this); }
Tensor Tensor::argmax(int64_t dim, bool keepdim) const { return tandem::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin(int64_t dim, bool keepdim) const { return tandem::argmin(*this, dim, keepdim); }
Tensor Tensor::any(const Shape& dims, bool keepdim) const { return tandem::any(*this, dims, keepdim); }
Tensor Tensor::all(const Shape& dims, bool keepdim) const { return tandem::all(*this, dims, keepdim); }

}}  // namespace tandem::v0
