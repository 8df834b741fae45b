#include <tandem/ops/softmax.h>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/softmax/softmax_kernels.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

/// The sum over `dim`, kept with size 1; a 0-dim tensor is its own sum.
Tensor sum_over(const Tensor& tensor, int64_t dim) { return tensor.dim() == 0 ? tensor : tensor.sum({dim}, true); }

/// The gradient of (log-)softmax with the result y.
Tensor softmax_gradient(const BackwardContext& context, const Tensor& y, int64_t dim, bool log) {
  const Tensor& grad = context.grad();
  if (context.create_graph()) {
    if (log) return sub(grad, mul(exp(y), sum_over(grad, dim)));
    return mul(y, sub(grad, sum_over(mul(grad, y), dim)));
  }
  const Tensor dense = row_major(grad), grad_input = empty(y.shape(), y.options());
  TANDEM_KERNEL(kernel_context(y.device()), softmax_backward, y.dtype(), extents_around(y.shape(), dim), log,
                dense.data_ptr(), y.data_ptr(), grad_input.data_ptr());
  return grad_input;
}

Tensor run_softmax(const char* op, Tensor input, int64_t dim, std::optional<DType> dtype, bool log) {
  if (!dtype) cast_for(CastPolicy::kFloat32, {&input});
  const Call call(op, {{"input", input}});
  if (dtype) input = to(input, *dtype);
  check_floating(op, {"input", input});
  dim = wrap_dim(op, dim, input.dim());
  const Tensor dense = row_major(input), out = empty(input.shape(), input.options());
  TANDEM_KERNEL(call, softmax, input.dtype(), extents_around(input.shape(), dim), log, dense.data_ptr(),
                out.data_ptr());
  record_gradient(op, out, {&input}, {{"output", out}}, [dim, log](BackwardContext& backward, const SavedTensor& y) {
    return softmax_gradient(backward, y.get(), dim, log);
  });
  return out;
}

}  // namespace

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  return run_softmax("softmax", input, dim, dtype, false);
}

Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  return run_softmax("log_softmax", input, dim, dtype, true);
}

}}  // namespace tandem::v0
