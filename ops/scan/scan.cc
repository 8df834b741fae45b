#include <tandem/ops/scan.h>

#include <cmath>
#include <utility>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/scan/linear_scan.h>
#include <tandem/ops/scan/scan_kernels.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::SavedTensor;
using ops::record_gradient;

namespace {

Tensor run_scan(const KernelContext& context, ScanKind kind, const Tensor& input, int64_t dim, bool reverse = false) {
  Tensor out = empty(input.shape(), {is_floating_point(input.dtype()) ? input.dtype() : kInt64, input.device()});
  const Tensor memory = ops::row_major(input);
  TANDEM_KERNEL(context, scan, kind, input.dtype(), extents_around(input.shape(), dim), reverse, memory.data_ptr(),
                out.data_ptr());
  return out;
}

/// {edge, x[0], x[1], ..} without the last element along dim; `edge` has size 1 along it.
Tensor shifted(const Tensor& edge, const Tensor& x, int64_t dim) {
  return cat({edge, slice(x, dim, 0, x.size(dim) - 1)}, dim);
}
Shape edge_shape(const Tensor& x, int64_t dim) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(dim)] = 1;
  return shape;
}

}  // namespace

namespace {

Tensor cumulative_sum(const char* op, const KernelContext& context, const Tensor& input, int64_t dim, bool reverse) {
  Tensor out = run_scan(context, ScanKind::kSum, input, dim, reverse);
  if (!is_floating_point(out.dtype())) return out;
  record_gradient(op, out, {&input}, [dim, reverse](const Tensor& grad) {
    return cumulative_sum("cumsum_backward", kernel_context(grad.device()), grad, dim, !reverse);
  });
  return out;
}

}  // namespace

Tensor cumsum(Tensor input, int64_t dim) {
  const ops::Call call("cumsum", CastPolicy::kFloat32, {{"input", &input}});
  return cumulative_sum("cumsum", call, input, wrap_dim("cumsum", dim, input.dim()), false);
}

Tensor ops::linear_scan(const Tensor& factors, const Tensor& input, int64_t dim, bool reverse) {
  const KernelContext context = kernel_context(input.device());
  Tensor out = empty(input.shape(), input.options());
  const Tensor a = row_major(factors), b = row_major(input);
  TANDEM_KERNEL(context, linear_scan, input.dtype(), extents_around(input.shape(), dim), reverse, a.data_ptr(),
                b.data_ptr(), out.data_ptr());
  // The gradient of `input` is the transposed recurrence of grad. Let y be the results of the recurrence and z the
  // results of its transpose; one of them is the output. The gradient of factors[i] is z[i] y[i - 1].
  const auto gradients = [dim, reverse](BackwardContext& backward, const SavedTensor& f, const SavedTensor& output) {
    const Tensor other = linear_scan(f.get(), backward.grad(), dim, !reverse);
    Tensor y = output.get(), z = other;
    if (reverse) std::swap(y, z);
    const auto of_factors = [&] { return mul(z, shifted(zeros(edge_shape(y, dim), y.options()), y, dim)); };
    return TensorList{backward.needs(0) ? of_factors() : Tensor(), other};
  };
  record_gradient("linear_scan", out, {&factors, &input}, {{"factors", factors}, {"output", out}}, gradients);
  return out;
}

namespace {

/// The gradient of x[k] is the product of the elements before it times s[k], where s[k] = grad[k] + x[k + 1] s[k + 1]:
/// no division, so it is right for zeros.
Tensor cumprod_gradient(const Tensor& grad, const Tensor& x, const Tensor& out, int64_t dim) {
  const Tensor before = shifted(ones(edge_shape(x, dim), x.options()), out, dim);
  return mul(before, ops::linear_scan(x, grad, dim, /*reverse=*/true));
}

/// The gradient of x[k] is the sum over j >= k of grad[j] exp(x[k] - out[j]). It is computed as exp(x[k] - out[k])
/// s[k], where s[k] = grad[k] + exp(out[k] - out[k + 1]) s[k + 1]: no exponential exceeds 1.
Tensor logcumsumexp_gradient(const Tensor& grad, const Tensor& x, const Tensor& out, int64_t dim) {
  const Tensor finite = where(eq(out, -INFINITY), 0, out);  // else differences would be NaN
  const Tensor factors = exp(sub(shifted(slice(out, dim, 0, 1), out, dim), finite));
  return mul(exp(sub(x, finite)), ops::linear_scan(factors, grad, dim, /*reverse=*/true));
}

Tensor scan_of(const char* op, ScanKind kind, Tensor input, int64_t dim) {
  const ops::Call call(op, CastPolicy::kFloat32, {{"input", &input}});
  if (kind == ScanKind::kLogSumExp) ops::check_floating(op, {"input", input});
  const int64_t d = wrap_dim(op, dim, input.dim());
  Tensor out = run_scan(call, kind, input, d);
  if (!is_floating_point(out.dtype())) return out;
  const bool is_trivial = input.dim() == 0 || input.numel() == 0;
  const auto gradient = [kind, d](const Tensor& grad, const Tensor& x, const Tensor& output) {
    if (x.numel() == 0) return zeros_like(x);
    if (x.dim() == 0) return grad;
    return kind == ScanKind::kProduct ? cumprod_gradient(grad, x, output, d)
                                      : logcumsumexp_gradient(grad, x, output, d);
  };
  record_gradient(op, out, {&input}, {{"input", input}, {"output", is_trivial ? Tensor() : out}}, gradient);
  return out;
}

}  // namespace

Tensor cumprod(Tensor input, int64_t dim) { return scan_of("cumprod", ScanKind::kProduct, std::move(input), dim); }
Tensor logcumsumexp(Tensor input, int64_t dim) {
  return scan_of("logcumsumexp", ScanKind::kLogSumExp, std::move(input), dim);
}

namespace {

ValuesIndices cumulative_extremum(const char* op, const Tensor& input, int64_t dim, bool largest) {
  const ops::Call call(op, {{"input", input}});
  const int64_t d = wrap_dim(op, dim, input.dim());
  ValuesIndices out{empty(input.shape(), input.options()), empty(input.shape(), {kInt64, input.device()})};
  const Tensor memory = ops::row_major(input);
  TANDEM_KERNEL(call, extremum_scan, input.dtype(), extents_around(input.shape(), d), largest, memory.data_ptr(),
                out.values.data_ptr(), out.indices.data<int64_t>());
  ops::record_gather(op, out.values, input, d, out.indices);
  return out;
}

}  // namespace

ValuesIndices cummax(const Tensor& input, int64_t dim) { return cumulative_extremum("cummax", input, dim, true); }
ValuesIndices cummin(const Tensor& input, int64_t dim) { return cumulative_extremum("cummin", input, dim, false); }

Tensor Tensor::cumsum(int64_t dim) const { return tandem::cumsum(*this, dim); }
Tensor Tensor::cumprod(int64_t dim) const { return tandem::cumprod(*this, dim); }
Tensor Tensor::logcumsumexp(int64_t dim) const { return tandem::logcumsumexp(*this, dim); }
ValuesIndices Tensor::cummax(int64_t dim) const { return tandem::cummax(*this, dim); }
ValuesIndices Tensor::cummin(int64_t dim) const { return tandem::cummin(*this, dim); }

}}  // namespace tandem::v0
