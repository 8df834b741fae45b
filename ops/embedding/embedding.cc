#include <tandem/ops/embedding.h>

#include <tandem/base/trace.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/embedding/embedding_kernels.h>
#include <tandem/ops/index/bounds_check.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// The rows of `weight`, unrecorded; indices are row-major and already checked.
Tensor take_rows(const Tensor& indices, const Tensor& weight) {
  Shape shape = indices.shape();
  shape.push_back(weight.shape()[1]);
  const Tensor dense = row_major(weight), out = empty(shape, weight.options());
  trace_work(0, indices.num_bytes() + 2 * out.num_bytes());  // not the whole weight
  TANDEM_KERNEL(kernel_context(weight.device()), embedding, size_of(weight.dtype()), indices.num_elements(),
                weight.shape()[0], weight.shape()[1], indices.data<int64_t>(), dense.data_ptr(), out.data_ptr());
  return out;
}

void write_gradient(const Tensor& grad, const Tensor& indices, bool accumulate, const Tensor& out) {
  const Tensor dense = row_major(grad);
  const int64_t n = indices.num_elements(), rows = out.shape()[0];
  const KernelContext context = kernel_context(grad.device());
  const Tensor workspace =
      empty({TANDEM_KERNEL(context, embedding_backward_workspace_bytes, n, rows)}, {kUInt8, grad.device()});
  TANDEM_KERNEL(context, embedding_backward, grad.dtype(), n, rows, out.shape()[1], indices.data<int64_t>(),
                dense.data_ptr(), accumulate, workspace.data_ptr(), out.data_ptr());
}

/// The gradient of embedding as an operation that is linear in grad; its own gradient is embedding.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, const Shape& weight_shape) {
  const Tensor out = empty(weight_shape, grad.options());
  write_gradient(grad, indices, false, out);

  struct EmbeddingBackwardNode : Node {
    SavedTensor indices{*this, "indices"};
    TensorList backward(BackwardContext& context) override { return {embedding(indices.get(), context.grad())}; }
  };
  if (auto* node = autograd::record<EmbeddingBackwardNode>("embedding_backward", out, grad))
    node->indices.save(indices);
  return out;
}

}  // namespace

Tensor embedding(const Tensor& indices_argument, const Tensor& weight) {
  const Operands operands = {{"indices", indices_argument}, {"weight", weight}};
  const KernelContext context = check_same_device("embedding", operands);
  TANDEM_CHECK(DTypeError, indices_argument.dtype() == kInt64,
               operand_error("embedding", "indices must be int64", operands));
  check_floating("embedding", {"weight", weight});
  TANDEM_CHECK(ShapeError, weight.dim() == 2, operand_error("embedding", "weight must be [V, d]", operands));
  const Tensor indices = row_major(indices_argument.detach());
  check_index_bounds("embedding", "index", context, indices, weight.shape()[0]);
  const Tensor out = take_rows(indices, weight);

  struct EmbeddingNode : Node {
    SavedTensor indices{*this, "indices"};
    Shape weight_shape;

    TensorList backward(BackwardContext& context) override {
      if (context.create_graph()) return {embedding_backward(context.grad(), indices.get(), weight_shape)};
      const auto [slot, accumulate] = context.grad_buffer(0);
      const Tensor out = slot.defined() ? slot : empty(weight_shape, context.grad().options());
      write_gradient(context.grad(), indices.get(), accumulate, out);
      return {out};
    }
  };
  if (auto* node = autograd::record<EmbeddingNode>("embedding", out, weight)) {
    node->indices.save(indices);
    node->weight_shape = weight.shape();
  }
  return out;
}

}}  // namespace tandem::v0
