// Matrix products of tensors, unrecorded, for the operations of this package. Private to ops/.
#pragma once

#include <cstdint>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// A 2-d view of a tensor, possibly transposed.
struct Matrix {
  Tensor tensor;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t col_stride;

  Matrix t() && { return {std::move(tensor), cols, rows, col_stride, row_stride}; }
};

/// The last two dimensions of a tensor.
Matrix matrix(const Tensor& tensor);
/// All dimensions except the last as rows; copies if the strides require it.
Matrix rows_of(const Tensor& tensor);
/// rows_of as a recorded 2-d tensor.
Tensor flat_rows(const Tensor& tensor);

Tensor row_major_copy(const Tensor& tensor, DType dtype);
/// Whether kernels can read the rows as they are.
bool has_row_major_rows(const Matrix& m);
/// The matrix as an argument of kernels. Unsupported strides are resolved by a copy, which `m` then holds.
MatrixOperand operand(Matrix& m);

/// Operations on a product; see GemmEpilogue, whose limits apply.
struct Epilogue {
  Tensor bias = {};
  bool relu = false;
  bool gelu = false;
  Tensor before_gelu = {};
};

/// out = epilogue(alpha * a @ b + beta * out), unrecorded; out is row-major with a.rows rows in total. On GPUs out may
/// be float32 for half types; then without an epilogue.
void multiply(const KernelContext& context, Matrix a, Matrix b, double alpha, double beta, const Tensor& out,
              const Epilogue& epilogue = {});
/// The gradient alpha * a @ b of input i, of dtype `dtype`, written into the leaf's slot if the engine provides it.
Tensor matmul_gradient(const KernelContext& context, autograd::BackwardContext& backward, int i, const Shape& shape,
                       DType dtype, Matrix a, Matrix b, double alpha = 1);
/// The gradient of input i, of dtype `dtype`: the sum of the rows of a row-major matrix without gaps, written into the
/// leaf's slot if the engine provides it.
Tensor sum_rows_gradient(autograd::BackwardContext& backward, int i, DType dtype, const Matrix& rows);
/// The gradient of the argument of an activation that is fused into a product with bias; layout of `saved`. Also
/// delivers its sum over rows as the gradient of input 2, the bias of dtype `bias_dtype`, if that is needed. `rows` is
/// the gradient of the activation's result; `saved` is that result (ReLU) or the argument (GELU). Both have the same
/// order in memory, without gaps.
Tensor activation_gradient(autograd::BackwardContext& backward, FusedActivation activation, const Matrix& rows,
                           const Tensor& saved, DType bias_dtype, TensorList& grads);

}}}  // namespace tandem::v0::ops
