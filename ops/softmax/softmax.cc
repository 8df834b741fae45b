#include <tandem/ops/softmax.h>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/softmax/softmax_kernels.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

SoftmaxShape split_at(const Shape& shape, int64_t dim) {
  SoftmaxShape split{1, 1, 1};
  for (int64_t d = 0; d < shape.dim(); ++d) {
    (d < dim ? split.outer : d == dim ? split.size : split.inner) *= shape[static_cast<size_t>(d)];
  }
  return split;
}

/// Checks and forward of both operations; `input` is replaced by its cast.
Tensor softmax_forward(const char* op, Tensor& input, int64_t& dim, std::optional<DType> dtype, bool log) {
  if (!dtype) cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = check_same_device(op, {{"input", input}});
  if (dtype) input = to(input, *dtype);
  check_floating(op, {"input", input});
  dim = wrap_dim(op, dim, input.dim());
  const Tensor out = empty(input.shape(), input.options());
  const Tensor dense = row_major(input);
  TANDEM_KERNEL(context, softmax, input.dtype(), split_at(input.shape(), dim), log, dense.data_ptr(), out.data_ptr());
  return out;
}

Tensor softmax_gradient(const Tensor& grad, const Tensor& output, int64_t dim, bool log) {
  const Tensor dense = row_major(grad);
  const Tensor grad_input = empty(output.shape(), output.options());
  TANDEM_KERNEL(kernel_context(output.device()), softmax_backward, output.dtype(), split_at(output.shape(), dim), log,
                dense.data_ptr(), output.data_ptr(), grad_input.data_ptr());
  return grad_input;
}

/// The sum over `dim`, kept with size 1; a 0-dim tensor is its own sum.
Tensor sum_over(const Tensor& tensor, int64_t dim) { return tensor.dim() == 0 ? tensor : tensor.sum({dim}, true); }

}  // namespace

Tensor softmax(const Tensor& input_argument, int64_t dim, std::optional<DType> dtype) {
  Tensor input = input_argument;
  const Tensor out = softmax_forward("softmax", input, dim, dtype, false);

  struct SoftmaxNode : Node {
    SavedTensor output{*this, "output"};
    int64_t dim = 0;

    TensorList backward(BackwardContext& context) override {
      const Tensor y = output.get();
      const Tensor& grad = context.grad();
      if (context.create_graph()) return {mul(y, sub(grad, sum_over(mul(grad, y), dim)))};
      return {softmax_gradient(grad, y, dim, false)};
    }
  };
  if (auto* node = autograd::record<SoftmaxNode>("softmax", out, input)) {
    node->output.save(out);
    node->dim = dim;
  }
  return out;
}

Tensor log_softmax(const Tensor& input_argument, int64_t dim, std::optional<DType> dtype) {
  Tensor input = input_argument;
  const Tensor out = softmax_forward("log_softmax", input, dim, dtype, true);

  struct LogSoftmaxNode : Node {
    SavedTensor output{*this, "output"};
    int64_t dim = 0;

    TensorList backward(BackwardContext& context) override {
      const Tensor y = output.get();
      const Tensor& grad = context.grad();
      if (context.create_graph()) return {sub(grad, mul(exp(y), sum_over(grad, dim)))};
      return {softmax_gradient(grad, y, dim, true)};
    }
  };
  if (auto* node = autograd::record<LogSoftmaxNode>("log_softmax", out, input)) {
    node->output.save(out);
    node->dim = dim;
  }
  return out;
}

}}  // namespace tandem::v0
