#include <tandem/ops/matmul/product.h>

#include <algorithm>

#include <tandem/base/trace.h>
#include <tandem/ops/common/common.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

/// The product of all sizes except the last. (num_elements / last size would fail for a last size of 0.)
int64_t num_rows(const Tensor& tensor) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < tensor.shape().size(); ++d) rows *= tensor.shape()[d];
  return rows;
}

}  // namespace

Matrix matrix(const Tensor& tensor) {
  const size_t d = tensor.shape().size();
  return {tensor, tensor.shape()[d - 2], tensor.shape()[d - 1], tensor.strides()[d - 2], tensor.strides()[d - 1]};
}

Tensor row_major_copy(const Tensor& tensor, DType dtype) {
  Tensor copy = empty(tensor.shape(), {dtype, tensor.device()});
  primitives::copy(tensor, copy);
  return copy;
}

Matrix rows_of(const Tensor& tensor) {
  if (tensor.dim() == 2) return matrix(tensor);
  const int64_t cols = tensor.shape().back();
  return {row_major(tensor), num_rows(tensor), cols, cols, 1};
}

Tensor flat_rows(const Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({num_rows(tensor), tensor.shape().back()});
}

bool has_row_major_rows(const Matrix& m) {
  return (m.cols <= 1 || m.col_stride == 1) && (m.rows <= 1 || m.row_stride >= std::max<int64_t>(1, m.cols));
}

MatrixOperand operand(Matrix& m) {
  if (has_row_major_rows(m))
    return {m.tensor.data_ptr(), m.rows <= 1 ? std::max<int64_t>(1, m.cols) : m.row_stride, false};
  Matrix transposed = Matrix(m).t();
  if (has_row_major_rows(transposed)) {
    return {m.tensor.data_ptr(), m.cols <= 1 ? std::max<int64_t>(1, m.rows) : m.col_stride, true};
  }
  const Tensor& t = m.tensor;
  Tensor view = make_view(t.storage(), t.dtype(), {m.rows, m.cols}, {m.row_stride, m.col_stride}, t.impl().offset);
  m = matrix(row_major_copy(view, t.dtype()));
  return {m.tensor.data_ptr(), std::max<int64_t>(1, m.cols), false};
}

void multiply(const KernelContext& context, Matrix a, Matrix b, double alpha, double beta, const Tensor& out,
              const Epilogue& epilogue) {
  const DType dtype = a.tensor.dtype();
  const bool rounds = out.dtype() == dtype, is_half_on_cpu = is_half(dtype) && context.device.is_cpu();
  if (is_half_on_cpu && !has_half_gemm(dtype, a.rows, b.cols, a.cols, rounds)) {
    const bool has_float32_result = has_half_gemm(dtype, a.rows, b.cols, a.cols, /*rounds=*/false);
    // Float32 copies of the matrices, through views that have exactly their strides.
    auto widened = [&](Matrix& m) {
      const Tensor& t = m.tensor;
      if (has_float32_result) return std::move(m);
      return matrix(row_major_copy(
          make_view(t.storage(), t.dtype(), {m.rows, m.cols}, {m.row_stride, m.col_stride}, t.impl().offset),
          kFloat32));
    };
    Tensor wide = beta == 0 ? empty(out.shape(), {kFloat32, out.device()}) : row_major_copy(out, kFloat32);
    multiply(context, widened(a), widened(b), alpha, beta, wide,
             {.bias = converted(epilogue.bias, kFloat32), .relu = epilogue.relu});
    primitives::copy(wide, out);
    return;
  }
  const MatrixOperand left = operand(a);
  const MatrixOperand right = operand(b);
  const Tensor bias = row_major(is_half_on_cpu ? converted(epilogue.bias, kFloat32) : epilogue.bias);
  const Tensor scratch = scratch_memory(
      TANDEM_KERNEL(context, gemm_workspace_bytes, dtype, 1, a.rows, b.cols, a.cols, left, right), out.device());
  trace_work(2 * a.rows * b.cols * a.cols);
  const GemmEpilogue fused = {.bias = data_or_null(bias),
                              .relu = epilogue.relu,
                              .float32_result = !rounds,
                              .gelu = epilogue.gelu,
                              .before_gelu = data_or_null(epilogue.before_gelu)};
  TANDEM_KERNEL(context, gemm, dtype, 1, a.rows, b.cols, a.cols, alpha, left, nullptr, right, nullptr, beta, fused,
                data_or_null(scratch), out.data_ptr());
}

Tensor matmul_gradient(const KernelContext& context, autograd::BackwardContext& backward, int i, const Shape& shape,
                       DType dtype, Matrix a, Matrix b, double alpha) {
  const auto [out, accumulate] = backward.grad_buffer(i, shape, dtype);
  multiply(context, std::move(a), std::move(b), alpha, accumulate ? 1 : 0, out);
  return out;
}

namespace {

/// Scratch memory for the sum of the rows.
Tensor sum_rows_scratch(const KernelContext& context, const Matrix& m) {
  return scratch_memory(TANDEM_KERNEL(context, sum_rows_workspace_bytes, m.tensor.dtype(), m.rows, m.cols),
                        context.device);
}

}  // namespace

Tensor sum_rows_gradient(autograd::BackwardContext& backward, int i, DType dtype, const Matrix& rows) {
  const KernelContext context = kernel_context(rows.tensor.device());
  const auto [out, accumulate] = backward.grad_buffer(i, {rows.cols}, dtype);
  const Tensor scratch = sum_rows_scratch(context, rows);
  TANDEM_KERNEL(context, sum_rows, rows.tensor.dtype(), dtype, rows.rows, rows.cols, rows.tensor.data_ptr(),
                accumulate ? 1 : 0, data_or_null(scratch), out.data_ptr());
  return out;
}

Tensor activation_gradient(autograd::BackwardContext& backward, FusedActivation activation, const Matrix& rows,
                           const Tensor& saved, DType bias_dtype, TensorList& grads) {
  const KernelContext context = kernel_context(saved.device());
  const Tensor out = empty_preserving_layout(saved, saved.dtype());
  autograd::BackwardContext::GradBuffer bias;
  if (grads.size() == 3 && backward.needs(2)) bias = backward.grad_buffer(2, {rows.cols}, bias_dtype);
  const Tensor scratch = sum_rows_scratch(context, rows);
  TANDEM_KERNEL(context, activation_and_sum_rows, activation, saved.dtype(), bias_dtype, rows.rows, rows.cols,
                rows.tensor.data_ptr(), saved.data_ptr(), bias.accumulate ? 1 : 0, out.data_ptr(),
                data_or_null(scratch), data_or_null(bias.tensor));
  if (bias.tensor.defined()) {
    grads[2] = bias.tensor;
    backward.notify_ready(2, grads[2]);
  }
  return out;
}

}}}  // namespace tandem::v0::ops
