#include <tandem/ops/reduce.h>

#include <algorithm>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce/reduce_kernels.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

namespace {

/// The removed dimensions and the shape of the result.
struct Reduction {
  SmallVector<bool, 6> removed;
  Shape kept_shape;   ///< of the result with keepdim
  Shape shape;        ///< of the result
  int64_t count = 1;  ///< elements per result
};

Reduction plan(const char* op, const Tensor& input, const Shape& dims, bool keepdim) {
  Reduction plan;
  plan.removed.resize(input.shape().size(), dims.empty());
  for (int64_t dim : dims) {
    const size_t d = static_cast<size_t>(wrap_dim(op, dim, input.dim()));
    if (input.dim() == 0) continue;  // a 0-dim tensor counts as one dimension
    TANDEM_CHECK(ShapeError, !plan.removed[d],
                 ops::operand_error(op, str("dims ", dims, " contain dimension ", d, " twice"), {{"input", input}}));
    plan.removed[d] = true;
  }
  for (size_t d = 0; d < plan.removed.size(); ++d) {
    const int64_t size = input.shape()[d];
    if (plan.removed[d]) plan.count *= size;
    plan.kept_shape.push_back(plan.removed[d] ? 1 : size);
    if (!plan.removed[d] || keepdim) plan.shape.push_back(plan.kept_shape.back());
  }
  return plan;
}

/// Memory that kernels read as a row-major block [outer, reduce, inner].
struct BlockView {
  ReduceSizes sizes;
  Tensor memory;
};

/// The input's own memory if the removed dimensions are one contiguous block between the others, which are in the order
/// of the result; otherwise a copy with the removed dimensions last.
BlockView arrange(const Tensor& input, const Reduction& plan) {
  const Shape& shape = input.shape();
  const Shape& strides = input.strides();
  if (plan.count == input.num_elements() && plan.count > 0 && input.is_contiguous()) return {{1, plan.count, 1}, input};
  SmallVector<size_t, 6> order;  // dimensions of more than one element, in memory order
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  ReduceSizes sizes;
  bool fits = true;
  int64_t expected = 1;  // stride of the next dimension, from the innermost on
  size_t last_kept = shape.size();
  bool any_removed = false;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    fits = fits && strides[d] == expected;
    expected *= shape[d];
    if (plan.removed[d]) {
      fits = fits && sizes.outer == 1;
      sizes.reduce *= shape[d];
      any_removed = true;
    } else {
      fits = fits && d < last_kept;
      last_kept = d;
      (any_removed ? sizes.outer : sizes.inner) *= shape[d];
    }
  }
  if (fits && input.num_elements() > 0) return {sizes, input};
  Shape dims;
  for (bool removed : {false, true}) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (plan.removed[d] == removed) dims.push_back(static_cast<int64_t>(d));
    }
  }
  const NoGradGuard no_grad;
  return {{num_elements(plan.shape), plan.count, 1}, contiguous(permute(input.detach(), dims))};
}

/// The sums over the plan's dimensions, divided by `divisor`.
Tensor run_sum(const KernelContext& context, const Tensor& input, const Reduction& plan, double divisor) {
  const DType dtype = is_floating_point(input.dtype()) ? input.dtype() : kInt64;
  Tensor out = empty(plan.shape, {dtype, input.device()});
  const BlockView block = arrange(input, plan);
  const int64_t num_bytes = TANDEM_KERNEL(context, sum_workspace_bytes, block.sizes);
  const Tensor workspace = num_bytes > 0 ? empty({num_bytes}, {kUInt8, input.device()}) : Tensor();
  TANDEM_KERNEL(context, sum, input.dtype(), block.sizes, divisor, block.memory.data_ptr(),
                num_bytes > 0 ? workspace.data_ptr() : nullptr, out.data_ptr());
  return out;
}

}  // namespace

// --- sum, mean -----------------------------------------------------------------------------------

namespace {

/// Every element gets the gradient of its sum, divided for a mean.
struct SumNode : Node {
  Shape input_shape;
  Shape kept_shape;
  double divisor = 1;
  TensorList backward(BackwardContext& context) override {
    const Tensor grad = reshape(context.grad(), kept_shape);
    return {expand(divisor == 1 ? grad : div(grad, divisor), input_shape)};
  }
};

Tensor sum_or_mean(const char* op, const KernelContext& context, const Tensor& input, const Reduction& plan,
                   double divisor) {
  Tensor out = run_sum(context, input, plan, divisor);
  if (!is_floating_point(out.dtype())) return out;
  if (auto* node = record<SumNode>(op, out, input)) {
    node->input_shape = input.shape();
    node->kept_shape = plan.kept_shape;
    // An empty input has no elements to divide, and the factor 0 / 0 would make second gradients NaN.
    node->divisor = input.num_elements() == 0 ? 1 : divisor;
  }
  return out;
}

}  // namespace

Tensor sum(Tensor input, const Shape& dims, bool keepdim) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("sum", {{"input", input}});
  return sum_or_mean("sum", context, input, plan("sum", input, dims, keepdim), 1);
}

Tensor sum(Tensor input) { return sum(std::move(input), {}); }

Tensor mean(Tensor input, const Shape& dims, bool keepdim) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("mean", {{"input", input}});
  ops::check_floating("mean", {"input", input});
  const Reduction reduction = plan("mean", input, dims, keepdim);
  return sum_or_mean("mean", context, input, reduction, static_cast<double>(reduction.count));
}

Tensor mean(Tensor input) { return mean(std::move(input), {}); }

Tensor ops::sum_to_shape(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const size_t added = grad.shape().size() - shape.size();
  Shape dims;
  for (size_t d = 0; d < grad.shape().size(); ++d) {
    if (d < added || (shape[d - added] == 1 && grad.shape()[d] != 1)) dims.push_back(static_cast<int64_t>(d));
  }
  // The leading dimensions are removed, the others keep size 1.
  if (dims.size() == added) return sum(grad, dims);
  return reshape(sum(grad, dims, true), shape);
}

// --- var -----------------------------------------------------------------------------------------

namespace {

struct VarNode : Node {
  SavedTensor input{*this, "input"};
  Shape dims;
  Shape kept_shape;
  double divisor = 1;
  TensorList backward(BackwardContext& context) override {
    const Tensor x = input.get();
    // As for a mean: an empty input has nothing to scale.
    const double factor = x.num_elements() == 0 ? 0 : 2 / divisor;
    const Tensor scale = reshape(mul(context.grad(), factor), kept_shape);
    return {mul(sub(x, mean(x, dims, true)), scale)};
  }
};

}  // namespace

Tensor var(Tensor input, const Shape& dims, int64_t correction, bool keepdim) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("var", {{"input", input}});
  ops::check_floating("var", {"input", input});
  const DType dtype = input.dtype();
  if (size_of(dtype) == 2) return to(var(to(input, kFloat32), dims, correction, keepdim), dtype);
  const Reduction reduction = plan("var", input, dims, keepdim);
  const double divisor = static_cast<double>(std::max<int64_t>(reduction.count - correction, 0));
  Tensor out;
  {
    const NoGradGuard no_grad;
    const Tensor centred = sub(input, mean(input, dims, true));
    centred.sub_(mean(centred, dims, true));  // the rounding error of the mean may exceed the deviations
    out = run_sum(context, mul(centred, centred), reduction, divisor);
  }
  if (auto* node = record<VarNode>("var", out, input)) {
    node->input.save(input);
    node->dims = dims;
    node->kept_shape = reduction.kept_shape;
    node->divisor = divisor;
  }
  return out;
}

// --- max, argmax ---------------------------------------------------------------------------------

namespace {

struct MaxNode : Node {
  SavedTensor input{*this, "input"};
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override {
    const Tensor values = input.get();
    const Tensor largest = output.get();
    // If the largest element is NaN, all NaNs count as largest.
    const Tensor is_largest = where(eq(largest, largest), eq(values, largest), ne(values, values));
    return {where(is_largest, div(context.grad(), to(sum(is_largest), values.dtype())), 0)};
  }
};

}  // namespace

Tensor max(const Tensor& input) {
  const KernelContext context = ops::check_same_device("max", {{"input", input}});
  TANDEM_CHECK(ShapeError, input.num_elements() > 0,
               ops::operand_error("max", "input has no elements", {{"input", input}}));
  Tensor out = empty({}, input.options());
  const Tensor memory = contiguous(input.detach());
  TANDEM_KERNEL(context, max, input.dtype(), memory.num_elements(), memory.data_ptr(), out.data_ptr());
  if (auto* node = record<MaxNode>("max", out, input)) {
    node->input.save(input);
    node->output.save(out);
  }
  return out;
}

Tensor argmax(const Tensor& input, int64_t dim, bool keepdim) {
  const KernelContext context = ops::check_same_device("argmax", {{"input", input}});
  const int64_t wrapped = wrap_dim("argmax", dim, input.dim());
  const Reduction reduction = plan("argmax", input, {wrapped}, keepdim);
  TANDEM_CHECK(ShapeError, reduction.count > 0,
               ops::operand_error("argmax", str("dimension ", wrapped, " is empty"), {{"input", input}}));
  Tensor out = empty(reduction.shape, {kInt64, input.device()});
  if (out.num_elements() == 0) return out;
  const BlockView block = arrange(input, reduction);
  TANDEM_KERNEL(context, argmax, input.dtype(), block.sizes, block.memory.data_ptr(), out.data_ptr());
  return out;
}

Tensor Tensor::sum() const { return tandem::sum(*this); }
Tensor Tensor::sum(const Shape& dims, bool keepdim) const { return tandem::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return tandem::mean(*this); }
Tensor Tensor::mean(const Shape& dims, bool keepdim) const { return tandem::mean(*this, dims, keepdim); }
Tensor Tensor::var(const Shape& dims, int64_t correction, bool keepdim) const {
  return tandem::var(*this, dims, correction, keepdim);
}
Tensor Tensor::max() const { return tandem::max(*this); }
Tensor Tensor::argmax(int64_t dim, bool keepdim) const { return tandem::argmax(*this, dim, keepdim); }

}}  // namespace tandem::v0
