#include <tandem/base/math.h>
#include <tandem/ops/reduce.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce/reduction.h>
#include <tandem/ops/scan.h>
#include <tandem/ops/scan/linear_scan.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using ops::plan_reduction;
using ops::record_gradient;
using ops::Reduction;

Reduction ops::plan_reduction(const char* op, const Tensor& input, const Shape& dims, bool keepdim) {
  Reduction plan;
  plan.removed.resize(input.shape().size(), dims.empty());
  for (int64_t dim : dims) {
    const size_t d = static_cast<size_t>(wrap_dim(op, dim, input.dim()));
    if (input.dim() == 0) continue;  // a 0-dim tensor counts as one dimension
    ops::check_input(op, input, !plan.removed[d], "dims ", dims, " contain dimension ", d, " twice");
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

ops::BlockView ops::arrange(const Tensor& input, const Reduction& plan) {
  const Shape& shape = input.shape();
  const Shape& strides = input.strides();
  if (plan.count == input.numel() && plan.count > 0 && input.is_contiguous()) return {{1, plan.count, 1}, input};
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
  if (fits && input.numel() > 0) return {sizes, input};
  Shape dims;
  for (bool removed : {false, true}) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (plan.removed[d] == removed) dims.push_back(static_cast<int64_t>(d));
    }
  }
  const NoGradGuard no_grad;
  return {{num_elements(plan.shape), plan.count, 1}, contiguous(permute(input.detach(), dims))};
}

namespace {

/// The fold over the reduction's dimensions, divided by `divisor`.
Tensor run_fold(const KernelContext& context, Fold fold, const Tensor& input, const Reduction& reduction,
                double divisor = 1) {
  const DType dtype = is_floating_point(input.dtype()) ? input.dtype() : kInt64;
  Tensor out = empty(reduction.shape, {dtype, input.device()});
  const ops::BlockView block = ops::arrange(input, reduction);
  const int64_t num_bytes = TANDEM_KERNEL(context, fold_workspace_bytes, block.sizes);
  const Tensor workspace = num_bytes > 0 ? empty({num_bytes}, {kUInt8, input.device()}) : Tensor();
  TANDEM_KERNEL(context, fold, fold, input.dtype(), block.sizes, divisor, block.memory.data_ptr(),
                num_bytes > 0 ? workspace.data_ptr() : nullptr, out.data_ptr());
  return out;
}

Tensor sum_or_mean(const char* op, const KernelContext& context, const Tensor& input, const Reduction& plan,
                   double divisor) {
  Tensor out = run_fold(context, Fold::kSum, input, plan, divisor);
  if (!is_floating_point(out.dtype())) return out;
  // An empty input has no elements to divide, and the factor 0 / 0 would make second gradients NaN.
  if (input.numel() == 0) divisor = 1;
  const auto gradient = [shape = input.shape(), kept = plan.kept_shape, divisor](const Tensor& grad_out) {
    const Tensor grad = reshape(grad_out, kept);
    return expand(divisor == 1 ? grad : div(grad, divisor), shape);
  };
  record_gradient(op, out, {&input}, gradient);
  return out;
}

}  // namespace

Tensor sum(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("sum", CastPolicy::kFloat32, {{"input", &input}});
  return sum_or_mean("sum", call, input, plan_reduction("sum", input, dims, keepdim), 1);
}

Tensor sum(Tensor input) { return sum(std::move(input), {}); }

Tensor mean(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("mean", CastPolicy::kFloat32, {{"input", &input}}, ops::DTypes::kFloating);
  const Reduction reduction = plan_reduction("mean", input, dims, keepdim);
  return sum_or_mean("mean", call, input, reduction, static_cast<double>(reduction.count));
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

namespace {

Tensor var_of(const char* op, const KernelContext& context, const Tensor& input, const Shape& dims, double correction,
              bool keepdim) {
  ops::check_floating(op, {"input", input});
  const DType dtype = input.dtype();
  if (size_of(dtype) == 2) return to(var_of(op, context, to(input, kFloat32), dims, correction, keepdim), dtype);
  const Reduction reduction = plan_reduction(op, input, dims, keepdim);
  const double divisor = std::max(static_cast<double>(reduction.count) - correction, 0.0);
  Tensor out;
  {
    const NoGradGuard no_grad;
    const Tensor centred = sub(input, mean(input, dims, true));
    centred.sub_(mean(centred, dims, true));  // the rounding error of the mean may exceed the deviations
    out = run_fold(context, Fold::kSquares, centred, reduction, divisor);
  }
  const auto gradient = [dims, kept = reduction.kept_shape, divisor](const Tensor& grad, const Tensor& x) {
    // As for a mean: an empty input has nothing to scale.
    const double factor = x.numel() == 0 ? 0 : 2 / divisor;
    const Tensor scale = reshape(mul(grad, factor), kept);
    return mul(sub(x, mean(x, dims, true)), scale);
  };
  record_gradient(op, out, {&input}, {{"input", input}}, gradient);
  return out;
}

/// Square root with the gradient 0 at 0.
Tensor root(const Tensor& x) {
  if (!autograd::should_record(x)) return sqrt(x);
  const Tensor is_zero = eq(x, 0);
  return where(is_zero, 0, sqrt(where(is_zero, 1, x)));
}

Tensor std_of(const char* op, const KernelContext& context, const Tensor& input, const Shape& dims, double correction,
              bool keepdim) {
  ops::check_floating(op, {"input", input});
  // The root's derivative at NaN would make second gradients of empty inputs NaN.
  if (input.numel() == 0) return var_of(op, context, input, dims, correction, keepdim);
  const DType dtype = input.dtype();
  const Tensor wide = size_of(dtype) == 2 ? to(input, kFloat32) : input;
  return to(root(var_of(op, context, wide, dims, correction, keepdim)), dtype);
}

}  // namespace

Tensor var(Tensor input, const Shape& dims, double correction, bool keepdim) {
  const ops::Call call("var", CastPolicy::kFloat32, {{"input", &input}});
  return var_of("var", call, input, dims, correction, keepdim);
}

Tensor std(Tensor input, const Shape& dims, double correction, bool keepdim) {
  const ops::Call call("std", CastPolicy::kFloat32, {{"input", &input}});
  return std_of("std", call, input, dims, correction, keepdim);
}

std::pair<Tensor, Tensor> var_mean(Tensor input, const Shape& dims, double correction, bool keepdim) {
  const ops::Call call("var_mean", CastPolicy::kFloat32, {{"input", &input}});
  return {var_of("var_mean", call, input, dims, correction, keepdim), mean(input, dims, keepdim)};
}

std::pair<Tensor, Tensor> std_mean(Tensor input, const Shape& dims, double correction, bool keepdim) {
  const ops::Call call("std_mean", CastPolicy::kFloat32, {{"input", &input}});
  return {std_of("std_mean", call, input, dims, correction, keepdim), mean(input, dims, keepdim)};
}

namespace {

/// The norm for every other p, in operations. Elements that are 0 get the gradient 0.
Tensor composed_norm(const Tensor& x, double p, const Shape& dims, bool keepdim) {
  const Tensor magnitudes = abs(x);
  if (std::isinf(p)) return p > 0 ? amax(magnitudes, dims, keepdim) : amin(magnitudes, dims, keepdim);
  const Tensor is_zero = eq(x, 0);
  if (p == 0) return sum(where(is_zero, mul(magnitudes, 0), 1), dims, keepdim);
  const Tensor powers = where(is_zero, p > 0 ? 0 : INFINITY, pow(where(is_zero, 1, magnitudes), p));
  const Tensor total = sum(powers, dims, keepdim);
  const Tensor is_none = eq(total, 0);
  return where(is_none, p > 0 ? 0 : INFINITY, pow(where(is_none, 1, total), 1 / p));
}

}  // namespace

Tensor norm(Tensor input, double p, const Shape& dims, bool keepdim) {
  const ops::Call call("norm", CastPolicy::kFloat32, {{"input", &input}}, ops::DTypes::kFloating);
  const DType dtype = input.dtype();
  if (size_of(dtype) == 2) return to(norm(to(input, kFloat32), p, dims, keepdim), dtype);
  const Reduction reduction = plan_reduction("norm", input, dims, keepdim);
  ops::check_input("norm", input, reduction.count > 0 || (p >= 0 && !std::isinf(p)), "a norm with p = ", p,
                   " needs at least one element");
  if (p != 1 && p != 2) return composed_norm(input, p, dims, keepdim);
  Tensor out = run_fold(call, p == 1 ? Fold::kMagnitudes : Fold::kSquares, input, reduction);
  if (p == 2) {
    const NoGradGuard no_grad;
    out = sqrt(out);
  }
  const auto gradient = [p, kept = reduction.kept_shape](const Tensor& grad_out, const Tensor& x,
                                                         const Tensor& output) {
    const Tensor grad = reshape(grad_out, kept);
    if (p == 1) return mul(grad, sub(to(gt(x, 0), x.dtype()), to(lt(x, 0), x.dtype())));
    const Tensor norms = reshape(output, kept);
    const Tensor is_zero = eq(norms, 0);
    return mul(x, where(is_zero, 0, div(grad, where(is_zero, 1, norms))));
  };
  record_gradient("norm", out, {&input}, {{"input", input}, {"output", p == 2 ? out : Tensor()}}, gradient);
  return out;
}

namespace {

Tensor prod_of(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("prod", CastPolicy::kFloat32, {{"input", &input}});
  const Reduction reduction = plan_reduction("prod", input, dims, keepdim);
  Tensor out = run_fold(call, Fold::kProduct, input, reduction);
  if (!is_floating_point(out.dtype())) return out;
  const bool whole = dims.empty() || input.dim() == 0;
  const int64_t dim = whole ? 0 : wrap_dim("prod", dims[0], input.dim());
  // Each element's gradient is the product of the elements before and after it, without a division: right for zeros.
  const auto gradient = [whole, dim, kept = reduction.kept_shape](const Tensor& grad, const Tensor& saved) {
    if (saved.numel() == 0) return zeros_like(saved);
    const Tensor x = whole ? reshape(saved, {-1}) : saved;
    Shape one = x.shape();
    one[static_cast<size_t>(dim)] = 1;
    const Tensor unit = ones(one, x.options());
    const int64_t n = x.size(dim);
    const Tensor before = cat({unit, slice(cumprod(x, dim), dim, 0, n - 1)}, dim);
    const Tensor last = cat({zeros(slice(x, dim, 1, n).shape(), x.options()), unit}, dim);
    const Tensor after = ops::linear_scan(x, last, dim, /*reverse=*/true);
    return reshape(mul(mul(before, after), reshape(grad, whole ? Shape{1} : kept)), saved.shape());
  };
  record_gradient("prod", out, {&input}, {{"input", input}}, gradient);
  return out;
}

}  // namespace

Tensor prod(Tensor input) { return prod_of(std::move(input), {}, false); }
Tensor prod(Tensor input, int64_t dim, bool keepdim) { return prod_of(std::move(input), {dim}, keepdim); }

Tensor logsumexp(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("logsumexp", CastPolicy::kFloat32, {{"input", &input}});
  const DType dtype = is_floating_point(input.dtype()) ? input.dtype() : kFloat32;
  if (input.dtype() != dtype || size_of(dtype) == 2) {
    return to(logsumexp(to(input, size_of(dtype) == 2 ? kFloat32 : dtype), dims, keepdim), dtype);
  }
  const Reduction reduction = plan_reduction("logsumexp", input, dims, keepdim);
  Tensor out;
  {
    const NoGradGuard no_grad;
    if (reduction.count == 0) {
      out = full(reduction.shape, -INFINITY, input.options());
    } else {
      const Tensor largest = amax(input, dims, true);
      const Tensor shift = where(eq(sub(largest, largest), 0), largest, 0);  // finite
      out = add(log(sum(exp(sub(input, shift)), dims, keepdim)), reshape(shift, reduction.shape));
    }
  }
  const auto gradient = [kept = reduction.kept_shape](const Tensor& grad, const Tensor& output, const Tensor& x) {
    const Tensor total = reshape(output, kept);
    const Tensor shift = where(eq(total, -INFINITY), 0, total);  // else the difference would be NaN
    return mul(exp(sub(x, shift)), reshape(grad, kept));
  };
  record_gradient("logsumexp", out, {&input}, {{"output", out}, {"input", input}}, gradient);
  return out;
}

Tensor nansum(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("nansum", CastPolicy::kFloat32, {{"input", &input}});
  const Reduction reduction = plan_reduction("nansum", input, dims, keepdim);
  if (is_floating_point(input.dtype())) input = masked_fill(input, ne(input, input), 0);
  return sum_or_mean("nansum", call, input, reduction, 1);
}

Tensor nanmean(Tensor input, const Shape& dims, bool keepdim) {
  const ops::Call call("nanmean", CastPolicy::kFloat32, {{"input", &input}}, ops::DTypes::kFloating);
  const Reduction reduction = plan_reduction("nanmean", input, dims, keepdim);
  if (input.numel() == 0) return sum_or_mean("nanmean", call, input, reduction, 0);
  const Tensor count = sum(eq(input, input), dims, keepdim);
  const Tensor total = sum_or_mean("nanmean", call, masked_fill(input, ne(input, input), 0), reduction, 1);
  return div(total, to(count, input.dtype()));
}

Tensor count_nonzero(const Tensor& input, const Shape& dims) {
  const ops::Call call("count_nonzero", {{"input", input}});
  const Reduction reduction = plan_reduction("count_nonzero", input, dims, false);
  return run_fold(call, Fold::kSum, ne(input, 0), reduction);
}

Tensor bincount(const Tensor& input, const Tensor& weights, int64_t minlength) {
  const ops::Call call("bincount", {{"input", input}, {"weights", weights, ops::kOptional}});
  call.require<DTypeError>(is_integral(input.dtype()), "input must be of an integer dtype");
  call.require(input.dim() == 1 && (!weights.defined() || weights.shape() == input.shape()),
               "input must have one dimension, and weights its shape");
  call.require<ValueError>(minlength >= 0, "minlength is ", minlength, ", expected at least 0");
  const NoGradGuard no_grad;
  const DType dtype = weights.defined() && weights.dtype() == kFloat32 ? kFloat32 : kFloat64;
  int64_t size = minlength;
  if (input.numel() > 0) {
    const int64_t lowest = min(input).item<int64_t>();
    call.require<ValueError>(lowest >= 0, "input contains ", lowest, ", expected numbers of at least 0");
    size = std::max(size, saturating_add(max(input).item<int64_t>(), 1));
  }
  const Tensor sums = zeros({size}, {dtype, input.device()});
  const int64_t block = int64_t{1} << (input.device().is_cpu() ? 20 : 25);  // bounds the memory of indices and values
  for (int64_t i = 0; i < input.size(0); i += block) {
    const Tensor index = to(input.slice(0, i, i + block), kInt64);
    sums.scatter_add_(
        0, index, weights.defined() ? to(weights.slice(0, i, i + block), dtype) : ones(index.shape(), sums.options()));
  }
  return weights.defined() ? sums : to(sums, kInt64);
}

Tensor Tensor::sum() const { return tandem::sum(*this); }
Tensor Tensor::sum(const Shape& dims, bool keepdim) const { return tandem::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return tandem::mean(*this); }
Tensor Tensor::mean(const Shape& dims, bool keepdim) const { return tandem::mean(*this, dims, keepdim); }
Tensor Tensor::var(const Shape& dims, double correction, bool keepdim) const {
  return tandem::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Shape& dims, double correction, bool keepdim) const {
  return tandem::std(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(double p, const Shape& dims, bool keepdim) const { return tandem::norm(*this, p, dims, keepdim); }
Tensor Tensor::prod() const { return tandem::prod(*this); }
Tensor Tensor::prod(int64_t dim, bool keepdim) const { return tandem::prod(*this, dim, keepdim); }
Tensor Tensor::logsumexp(const Shape& dims, bool keepdim) const { return tandem::logsumexp(*this, dims, keepdim); }
Tensor Tensor::nansum(const Shape& dims, bool keepdim) const { return tandem::nansum(*this, dims, keepdim); }
Tensor Tensor::nanmean(const Shape& dims, bool keepdim) const { return tandem::nanmean(*this, dims, keepdim); }
Tensor Tensor::count_nonzero(const Shape& dims) const { return tandem::count_nonzero(*this, dims); }

}}  // namespace tandem::v0
