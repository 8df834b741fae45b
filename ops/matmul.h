// Matrix products.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/ops/activation.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// out = input @ other.
///
/// Shapes as in NumPy: [m, k] @ [k, n] -> [m, n]; leading dimensions are batches and broadcast; a 1-d input counts as
/// [1, k] and a 1-d other as [k, 1], and the added dimension is removed from the result. Any dtype except bool, equal
/// for both; one device; any strides. The algorithm for float32 follows docs/decisions/001-float32-products.md; half
/// types are computed in float32 and rounded once. The result is row-major.
///
/// Backward saves both operands: d input = d out @ other^T, d other = input^T @ d out, summed over broadcast batches.
/// Throws DeviceError, DTypeError, ShapeError (a 0-dim operand, inner sizes or batches that differ).
TANDEM_OP Tensor matmul(const Tensor& input, const Tensor& other);

/// out[i] = input[i] @ mat2[i] for a batch of matrices.
///
/// input [b, m, k], mat2 [b, k, n] -> [b, m, n], row-major; batches do not broadcast. Any dtype except bool, equal for
/// both; one device; any strides. Backward saves both operands: d input[i] = d out[i] @ mat2[i]^T, d mat2[i] =
/// input[i]^T @ d out[i]. Throws DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor bmm(const Tensor& input, const Tensor& mat2);

/// out = beta * input + alpha * (mat1 @ mat2).
///
/// mat1 [m, k], mat2 [k, n]; input broadcasts to [m, n]. If beta is 0, the values of input are not read, so NaNs in it
/// do not propagate. Any dtype except bool, equal for all three; one device.
///
/// Backward saves mat1 and mat2: d input = beta * d out summed to its shape, d mat1 = alpha * d out @ mat2^T,
/// d mat2 = alpha * mat1^T @ d out. Throws DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, Scalar beta = 1, Scalar alpha = 1);

/// addmm of a matrix [n, m] and a vector [m]: beta * input + alpha * (mat @ vec) for an input [n], [1] or [].
TANDEM_OP Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta = 1, Scalar alpha = 1);

/// out[i] = beta * input[i] + alpha * (batch1[i] @ batch2[i]).
///
/// batch1 [b, m, k], batch2 [b, k, n]; input broadcasts to [b, m, n]. Gradients, and an input that is not read if beta
/// is 0, as for addmm.
TANDEM_OP Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1,
                         Scalar alpha = 1);

/// matmul of two matrices [m, k] and [k, n]. Throws as matmul, and ShapeError for other numbers of dimensions.
TANDEM_OP Tensor mm(const Tensor& input, const Tensor& mat2);
/// matmul of a matrix [m, k] and a vector [k]: [m]. Throws as mm.
TANDEM_OP Tensor mv(const Tensor& input, const Tensor& vec);
/// The sum of the products of two vectors [k], 0-dim. Throws as mm.
TANDEM_OP Tensor dot(const Tensor& input, const Tensor& tensor);
/// out[i, j] = input[i] * vec2[j] for vectors [m] and [n]; dtypes promote, and gradients are as in mul. Throws
/// ShapeError for other numbers of dimensions.
TANDEM_OP Tensor outer(const Tensor& input, const Tensor& vec2);
/// The vector products along dimension dim, which has size 3; the other dimensions broadcast. Any dtype except bool
/// (DTypeError). Throws ShapeError unless input and other have the same number of dimensions.
TANDEM_OP Tensor cross(const Tensor& input, const Tensor& other, int64_t dim = -1);

/// Einstein's summation: "ij,jk->ik" is a matrix product, "bij->bji" a transpose, "ii->" a trace.
///
/// `equation` names the dimensions of each tensor by letters, separated by commas; spaces are ignored. The letters
/// after "->" are the dimensions of the result; the products are summed over all others. Without "->" they are the
/// letters that occur once, upper case first, in alphabetical order, after the dimensions of "...". A letter that
/// occurs twice in one tensor takes its diagonal. "..." stands for any number of dimensions, which broadcast;
/// dimensions of size 1 broadcast to the size of their letter. "..." that is missing after "->" is summed.
///
/// Tensors are multiplied from left to right, each pair by one (batched) matmul, after sums over dimensions that only
/// one of them has; without products the result may be a view. Any dtype except bool, equal for all; half types are
/// rounded after each product. The result has their dtype. Backward saves the tensors that these operations save.
/// Throws ValueError for a malformed equation, ShapeError naming the tensor and the letter, DTypeError, DeviceError.
TANDEM_OP Tensor einsum(const std::string& equation, const std::vector<Tensor>& tensors);

/// y = x @ weight^T + bias.
///
/// x [..., in], weight [out, in], bias [out] [optional] -> [..., out]. A weight [in] with a bias [] gives [...].
/// Floating, equal dtypes, one device. The bias is added while a tile of the product is in the cache.
///
/// Backward saves x and weight: d x = d y @ weight (only if x needs a gradient); d weight = d y^T @ x and d bias = the
/// sum of the rows of d y are written into the leaf's gradient slot if they are its only contribution. Throws
/// DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// y[..., o] = input1[..., :] @ weight[o] @ input2[..., :] + bias[o].
///
/// input1 [..., in1], input2 [..., in2] with equal leading sizes, weight [out, in1, in2], bias [out] [optional] ->
/// [..., out]. Floating, equal dtypes, one device. Composed of matmul; half types are computed in float32 and rounded
/// once. Saves all operands but the bias, and a float32 or float64 tensor [..., out, in2]. Throws DeviceError,
/// DTypeError, ShapeError.
TANDEM_OP Tensor bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor bias = {});

/// y = max(0, x @ weight^T + bias) as one operation; shapes, dtypes and errors as for `linear`.
///
/// Backward saves x, weight and y. It masks d y where y is 0 in the pass that sums the gradient of the bias.
TANDEM_OP Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// y = gelu(x @ weight^T + bias) as one operation; shapes, dtypes and errors as for `linear`.
///
/// On GPUs the tanh form of half types is computed in the product's epilogue, from sums that are not rounded. Backward
/// then saves x, weight, bias and the argument of gelu, and sums the gradient of the bias in the pass that computes the
/// gradient of that argument. Otherwise, and if a gradient is recorded but weight needs none, it is gelu(linear(x,
/// weight, bias)), which rounds the argument of gelu too.
TANDEM_OP Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                             GeluApproximation approximation = GeluApproximation::kNone);

}}  // namespace tandem::v0
