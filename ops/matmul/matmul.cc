#include <tandem/ops/matmul.h>

#include <algorithm>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul/product.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::SavedTensor;

namespace ops { namespace {

Tensor swap_last_two(const Tensor& tensor) { return tensor.transpose(-2, -1); }

void check_dtype(const char* op, OperandSpan operands) {
  check_same_dtype(op, operands);
  TANDEM_CHECK(DTypeError, operands.front().tensor.dtype() != kBool,
               operand_error(op, "bool matrices cannot be multiplied", operands));
}

/// out = alpha * a @ b + beta * out for tensors of at least two dimensions, unrecorded; out is row-major [batch, m, n].
void batched_multiply(const KernelContext& context, const Tensor& a, const Tensor& b, const Shape& batch, double alpha,
                      double beta, const Tensor& out) {
  if (b.dim() == 2) {  // one product of all rows of a
    multiply(context, rows_of(a), matrix(b), alpha, beta, out);
    return;
  }
  if (is_half(a.dtype()) && a.device().is_cpu() &&
      !has_half_gemm(a.dtype(), a.size(-2), b.size(-1), b.size(-2), /*rounds=*/true)) {
    const Tensor wide = beta == 0 ? empty(out.shape(), {kFloat32, out.device()}) : row_major_copy(out, kFloat32);
    batched_multiply(context, row_major_copy(a, kFloat32), row_major_copy(b, kFloat32), batch, alpha, beta, wide);
    primitives::copy(wide, out);
    return;
  }
  Tensor left_tensor = a, right_tensor = b;
  Matrix left = matrix(a), right = matrix(b);
  // The kernel supports any strides of the batch dimensions. If the last two strides are unsupported, the whole batch
  // is copied.
  auto fits = [](const Matrix& m) { return has_row_major_rows(m) || has_row_major_rows(Matrix(m).t()); };
  if (!fits(left)) left = matrix(left_tensor = row_major_copy(a, a.dtype()));
  if (!fits(right)) right = matrix(right_tensor = row_major_copy(b, b.dtype()));
  const MatrixOperand left_operand = operand(left), right_operand = operand(right);

  const int64_t batches = num_elements(batch);
  std::vector<int64_t> offsets(static_cast<size_t>(2 * batches));
  auto fill_offsets = [&](const Tensor& t, int64_t* out_offsets) {
    for (int64_t i = 0; i < batches; ++i) {
      int64_t rest = i, offset = 0;
      for (int64_t d = batch.dim() - 1, own = t.dim() - 3; d >= 0 && own >= 0; --d, --own) {
        const int64_t index = rest % batch[static_cast<size_t>(d)];
        rest /= batch[static_cast<size_t>(d)];
        if (t.shape()[static_cast<size_t>(own)] != 1) offset += index * t.strides()[static_cast<size_t>(own)];
      }
      out_offsets[i] = offset;
    }
  };
  fill_offsets(left_tensor, offsets.data());
  fill_offsets(right_tensor, offsets.data() + batches);
  const int64_t m = left.rows, n = right.cols, k = left.cols;
  trace_work(2 * batches * m * n * k);
  const Tensor scratch = scratch_memory(
      TANDEM_KERNEL(context, gemm_workspace_bytes, out.dtype(), batches, m, n, k, left_operand, right_operand),
      out.device());
  TANDEM_KERNEL(context, gemm, out.dtype(), batches, m, n, k, alpha, left_operand, offsets.data(), right_operand,
                offsets.data() + batches, beta, {}, data_or_null(scratch), out.data_ptr());
}

/// a @ b for tensors of at least two dimensions, unrecorded.
Tensor batched_matmul(const KernelContext& context, const Tensor& a, const Tensor& b, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  const Tensor out = empty(shape, a.options());
  batched_multiply(context, a, b, batch, 1, 0, out);
  return out;
}

/// Fills the new `out` with `input`, broadcast, unless beta is 0. Throws ShapeError unless it broadcasts.
void fill_with_input(const char* op, OperandSpan operands, double beta, const Tensor& out) {
  const Tensor& input = operands.front().tensor;
  const Shape &from = input.shape(), &shape = out.shape();
  bool expands = from.size() <= shape.size();
  for (size_t d = 0; d < from.size() && expands; ++d) {
    expands = from[d] == 1 || from[d] == shape[d + shape.size() - from.size()];
  }
  TANDEM_CHECK(ShapeError, expands, operand_error(op, str("input does not broadcast to ", shape), operands));
  if (beta == 0) return;
  primitives::copy(
      make_view(input.storage(), input.dtype(), shape, broadcast_strides(input, shape), input.impl().offset), out);
}

/// The batch dimensions of a and b, broadcast.
Shape batch_shape(const Tensor& a, const Tensor& b) {
  Shape batch;
  const int64_t dims = std::max(a.dim(), b.dim()) - 2;
  for (int64_t d = dims; d > 0; --d) {
    const int64_t in_a = a.dim() - 2 >= d ? a.size(-2 - d) : 1;
    const int64_t in_b = b.dim() - 2 >= d ? b.size(-2 - d) : 1;
    TANDEM_CHECK(ShapeError, in_a == in_b || in_a == 1 || in_b == 1,
                 operand_error("matmul", str("batch sizes ", in_a, " and ", in_b, " do not broadcast"),
                               {{"input", a}, {"other", b}}));
    batch.push_back(in_a == 1 ? in_b : in_a);
  }
  return batch;
}

/// Throws ShapeError unless left and right are batches of matrices that can be multiplied.
void check_batches(const char* op, OperandSpan operands, Operand left, Operand right) {
  const Tensor &a = left.tensor, &b = right.tensor;
  TANDEM_CHECK(ShapeError, a.dim() == 3 && b.dim() == 3,
               operand_error(op, str(left.name, " and ", right.name, " must have 3 dimensions"), operands));
  TANDEM_CHECK(ShapeError, a.size(0) == b.size(0),
               operand_error(op, str("batch sizes ", a.size(0), " and ", b.size(0), " differ"), operands));
  TANDEM_CHECK(ShapeError, a.size(2) == b.size(1),
               operand_error(op, str("inner sizes ", a.size(2), " and ", b.size(1), " differ"), operands));
}

}}  // namespace ops

using namespace ops;

namespace {

/// A factor of a product, if the gradient of the other factor needs it.
Tensor saved_for(const Tensor& other, const Tensor& factor) { return other.requires_grad() ? factor : Tensor(); }

}  // namespace

Tensor matmul(const Tensor& input_argument, const Tensor& other_argument) {
  Tensor input = input_argument, other = other_argument;
  const Call call("matmul", CastPolicy::kLowPrecision, {{"input", &input}, {"other", &other}});
  check_dtype("matmul", call.operands);
  call.require(input.dim() > 0 && other.dim() > 0, "input and other must have at least one dimension");
  const int64_t inner = input.shape().back();
  const int64_t other_inner = other.dim() == 1 ? other.size(0) : other.size(-2);
  call.require(inner == other_inner, "inner sizes ", inner, " and ", other_inner, " differ");
  if (input.dim() == 1) {
    const Tensor product = matmul(input.unsqueeze(0), other);
    return product.squeeze(other.dim() == 1 ? -1 : -2);
  }
  if (other.dim() == 1) return matmul(input, other.unsqueeze(1)).squeeze(-1);

  Tensor out;
  if (input.dim() == 2 && other.dim() == 2) {
    out = empty({input.size(0), other.size(1)}, input.options());
    multiply(call, matrix(input), matrix(other), 1, 0, out);
  } else {
    out = batched_matmul(call, input, other, batch_shape(input, other));
  }
  const auto gradients = [a_shape = input.shape(), b_shape = other.shape()](
                             BackwardContext& context, const SavedTensor& a, const SavedTensor& b) {
    TensorList grads(2);
    const Tensor& grad = context.grad();
    if (a_shape.size() == 2 && b_shape.size() == 2 && !context.create_graph()) {
      const KernelContext kernels = kernel_context(grad.device());
      if (context.needs(0)) {
        grads[0] = matmul_gradient(kernels, context, 0, a_shape, grad.dtype(), matrix(grad), matrix(b.get()).t());
      }
      if (context.needs(1)) {
        grads[1] = matmul_gradient(kernels, context, 1, b_shape, grad.dtype(), matrix(a.get()).t(), matrix(grad));
      }
      return grads;
    }
    if (context.needs(0)) grads[0] = sum_to_shape(matmul(grad, swap_last_two(b.get())), a_shape);
    if (context.needs(1)) {
      const Tensor saved = a.get();
      grads[1] = b_shape.size() == 2 ? matmul(swap_last_two(flat_rows(saved)), flat_rows(grad))
                                     : sum_to_shape(matmul(swap_last_two(saved), grad), b_shape);
    }
    return grads;
  };
  record_gradient("matmul", out, {&input, &other},
                  {{"input", saved_for(other, input)}, {"other", saved_for(input, other)}}, gradients);
  return out;
}

Tensor Tensor::matmul(const Tensor& other) const { return v0::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& mat2) const { return v0::mm(*this, mat2); }

namespace {

/// matmul under the name `op`, of operands with the given numbers of dimensions.
Tensor checked_matmul(const char* op, Tensor input, int64_t dims, const char* other_name, Tensor other,
                      int64_t other_dims) {
  const Call call(op, CastPolicy::kLowPrecision, {{"input", &input}, {other_name, &other}});
  check_dtype(op, call.operands);
  call.require(input.dim() == dims && other.dim() == other_dims && input.size(-1) == other.size(0), "input must be ",
               dims == 2 ? "[m, k]" : "[k]", " and ", other_name, " ", other_dims == 2 ? "[k, n]" : "[k]");
  return matmul(input, other);
}

}  // namespace

Tensor mm(const Tensor& input, const Tensor& mat2) { return checked_matmul("mm", input, 2, "mat2", mat2, 2); }
Tensor mv(const Tensor& input, const Tensor& vec) { return checked_matmul("mv", input, 2, "vec", vec, 1); }
Tensor dot(const Tensor& input, const Tensor& tensor) { return checked_matmul("dot", input, 1, "tensor", tensor, 1); }

Tensor cross(const Tensor& input, const Tensor& other, int64_t dim) {
  const Call call("cross", {{"input", input}, {"other", other}});
  call.require(input.dim() > 0 && input.dim() == other.dim() && input.size(dim) == 3 && other.size(dim) == 3,
               "dimension ", dim, " of both must have size 3");
  const auto shifted = [&](const Tensor& x, int64_t by) { return x.roll(-by, dim); };
  return sub(mul(shifted(input, 1), shifted(other, 2)), mul(shifted(input, 2), shifted(other, 1)));
}

Tensor outer(const Tensor& input, const Tensor& vec2) {
  const Call call("outer", {{"input", input}, {"vec2", vec2}});
  call.require(input.dim() == 1 && vec2.dim() == 1, "input and vec2 must have 1 dimension");
  return mul(input.unsqueeze(1), vec2);
}

Tensor bmm(const Tensor& input_argument, const Tensor& mat2_argument) {
  Tensor input = input_argument, mat2 = mat2_argument;
  const Call call("bmm", CastPolicy::kLowPrecision, {{"input", &input}, {"mat2", &mat2}});
  check_dtype("bmm", call.operands);
  check_batches("bmm", call.operands, call.operands[0], call.operands[1]);
  const Tensor out = batched_matmul(call, input, mat2, {input.size(0)});
  const auto gradients = [](BackwardContext& context, const SavedTensor& a, const SavedTensor& b) {
    return TensorList{context.needs(0) ? bmm(context.grad(), swap_last_two(b.get())) : Tensor(),
                      context.needs(1) ? bmm(swap_last_two(a.get()), context.grad()) : Tensor()};
  };
  record_gradient("bmm", out, {&input, &mat2}, {{"input", saved_for(mat2, input)}, {"mat2", saved_for(input, mat2)}},
                  gradients);
  return out;
}

Tensor addmm(const Tensor& input_argument, const Tensor& mat1_argument, const Tensor& mat2_argument, Scalar beta,
             Scalar alpha) {
  Tensor input = input_argument, mat1 = mat1_argument, mat2 = mat2_argument;
  const Call call("addmm", CastPolicy::kLowPrecision, {{"input", &input}, {"mat1", &mat1}, {"mat2", &mat2}});
  check_dtype("addmm", call.operands);
  call.require(mat1.dim() == 2 && mat2.dim() == 2, "mat1 and mat2 must have 2 dimensions");
  call.require(mat1.size(1) == mat2.size(0), "inner sizes ", mat1.size(1), " and ", mat2.size(0), " differ");
  const Tensor out = empty({mat1.size(0), mat2.size(1)}, mat1.options());
  fill_with_input("addmm", call.operands, beta.to_double(), out);
  multiply(call, matrix(mat1), matrix(mat2), alpha.to_double(), beta.to_double(), out);
  const auto gradients = [input_shape = input.shape(), a_shape = mat1.shape(), b_shape = mat2.shape(),
                          scale = beta.to_double(), factor = alpha.to_double()](
                             BackwardContext& context, const SavedTensor& a, const SavedTensor& b) {
    TensorList grads(3);
    const Tensor& grad = context.grad();
    const KernelContext kernels = kernel_context(grad.device());
    if (context.needs(0)) grads[0] = sum_to_shape(scale == 1 ? grad : mul(grad, scale), input_shape);
    if (context.needs(1)) {
      grads[1] = context.create_graph() ? mul(matmul(grad, b.get().t()), factor)
                                        : matmul_gradient(kernels, context, 1, a_shape, grad.dtype(), matrix(grad),
                                                          matrix(b.get()).t(), factor);
    }
    if (context.needs(2)) {
      grads[2] = context.create_graph() ? mul(matmul(a.get().t(), grad), factor)
                                        : matmul_gradient(kernels, context, 2, b_shape, grad.dtype(),
                                                          matrix(a.get()).t(), matrix(grad), factor);
    }
    return grads;
  };
  record_gradient("addmm", out, {&input, &mat1, &mat2},
                  {{"mat1", saved_for(mat2, mat1)}, {"mat2", saved_for(mat1, mat2)}}, gradients);
  return out;
}

Tensor addmv(const Tensor& input_argument, const Tensor& mat_argument, const Tensor& vec_argument, Scalar beta,
             Scalar alpha) {
  Tensor input = input_argument, mat = mat_argument, vec = vec_argument;
  const Call call("addmv", CastPolicy::kLowPrecision, {{"input", &input}, {"mat", &mat}, {"vec", &vec}});
  check_dtype("addmv", call.operands);
  const bool fits = mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0) && input.dim() <= 1;
  call.require(fits && (input.numel() == 1 || input.size(0) == mat.size(0)),
               "input [n], mat [n, m] and vec [m] are needed");
  return addmm(input.unsqueeze(-1), mat, vec.unsqueeze(1), beta, alpha).squeeze(1);
}

Tensor baddbmm(const Tensor& input_argument, const Tensor& batch1_argument, const Tensor& batch2_argument, Scalar beta,
               Scalar alpha) {
  Tensor input = input_argument, batch1 = batch1_argument, batch2 = batch2_argument;
  const Call call("baddbmm", CastPolicy::kLowPrecision, {{"input", &input}, {"batch1", &batch1}, {"batch2", &batch2}});
  check_dtype("baddbmm", call.operands);
  check_batches("baddbmm", call.operands, call.operands[1], call.operands[2]);
  const Tensor out = empty({batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.options());
  fill_with_input("baddbmm", call.operands, beta.to_double(), out);
  batched_multiply(call, batch1, batch2, {batch1.size(0)}, alpha.to_double(), beta.to_double(), out);
  const auto gradients = [shape = input.shape(), of_input = beta.to_double(), of_product = alpha.to_double()](
                             BackwardContext& context, const SavedTensor& a, const SavedTensor& b) {
    TensorList grads(3);
    const auto scaled = [](const Tensor& tensor, double factor) { return factor == 1 ? tensor : mul(tensor, factor); };
    const Tensor& grad = context.grad();
    if (context.needs(0)) grads[0] = sum_to_shape(scaled(grad, of_input), shape);
    if (context.needs(1)) grads[1] = scaled(bmm(grad, swap_last_two(b.get())), of_product);
    if (context.needs(2)) grads[2] = scaled(bmm(swap_last_two(a.get()), grad), of_product);
    return grads;
  };
  record_gradient("baddbmm", out, {&input, &batch1, &batch2},
                  {{"batch1", saved_for(batch2, batch1)}, {"batch2", saved_for(batch1, batch2)}}, gradients);
  return out;
}

}}  // namespace tandem::v0
