#include <tandem/ops/embedding.h>

#include <tandem/base/trace.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/embedding/embedding_kernels.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

constexpr int64_t kNoPadding = -1;

/// The rows of `weight`, unrecorded; indices are row-major and already checked.
Tensor take_rows(const Tensor& indices, const Tensor& weight) {
  Shape shape = indices.shape();
  shape.push_back(weight.shape()[1]);
  const Tensor dense = row_major(weight), out = empty(shape, weight.options());
  trace_work(0, indices.num_bytes() + 2 * out.num_bytes());  // not the whole weight
  TANDEM_KERNEL(kernel_context(weight.device()), embedding, size_of(weight.dtype()), indices.numel(), weight.shape()[0],
                weight.shape()[1], indices.data<int64_t>(), dense.data_ptr(), out.data_ptr());
  return out;
}

void write_gradient(const Tensor& grad, const Tensor& indices, int64_t padding, bool accumulate, const Tensor& out) {
  const Tensor dense = row_major(grad);
  const int64_t n = indices.numel(), rows = out.shape()[0];
  const KernelContext context = kernel_context(grad.device());
  const Tensor workspace =
      empty({TANDEM_KERNEL(context, embedding_backward_workspace_bytes, n, rows)}, {kUInt8, grad.device()});
  TANDEM_KERNEL(context, embedding_backward, grad.dtype(), n, rows, out.shape()[1], padding, indices.data<int64_t>(),
                dense.data_ptr(), accumulate, workspace.data_ptr(), out.data_ptr());
}

/// The gradient of embedding as an operation that is linear in grad; its own gradient is embedding, and 0 for padding.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t padding, const Shape& weight_shape) {
  const Tensor out = empty(weight_shape, grad.options());
  write_gradient(grad, indices, padding, false, out);
  const auto gradient = [padding](const Tensor& grad_out, const Tensor& saved) {
    const Tensor rows = embedding(saved, grad_out);
    return padding == kNoPadding ? rows : where(eq(saved, padding).unsqueeze(-1), 0, rows);
  };
  record_gradient("embedding_backward", out, {&grad}, {{"indices", indices}}, gradient);
  return out;
}

}  // namespace

Tensor embedding(const Tensor& indices_argument, const Tensor& weight, std::optional<int64_t> padding_idx) {
  const Call call("embedding", {{"indices", indices_argument}, {"weight", weight}});
  call.require<DTypeError>(indices_argument.dtype() == kInt64, "indices must be int64");
  check_floating("embedding", {"weight", weight});
  call.require(weight.dim() == 2, "weight must be [V, d]");
  const int64_t num_rows = weight.shape()[0];
  call.require<IndexError>(!padding_idx || (*padding_idx >= -num_rows && *padding_idx < num_rows), "padding_idx is ",
                           padding_idx.value_or(0), ", expected -", num_rows, " to ", num_rows - 1);
  const int64_t padding = !padding_idx ? kNoPadding : *padding_idx < 0 ? *padding_idx + num_rows : *padding_idx;
  const Tensor indices = row_major(indices_argument.detach());
  check_index_bounds("embedding", "index", call, indices, num_rows);
  const Tensor out = take_rows(indices, weight);
  const auto gradient = [shape = weight.shape(), padding](BackwardContext& context, const SavedTensor& saved) {
    const Tensor &grad = context.grad(), positions = saved.get();
    if (context.create_graph()) return embedding_backward(grad, positions, padding, shape);
    const auto [buffer, accumulate] = context.grad_buffer(0, shape, grad.dtype());
    write_gradient(grad, positions, padding, accumulate, buffer);
    return buffer;
  };
  record_gradient("embedding", out, {&weight}, {{"indices", indices}}, gradient);
  return out;
}

}}  // namespace tandem::v0
