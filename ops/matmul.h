// Matrix products.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// out = input @ other.
///
/// Shapes as in NumPy: [m, k] @ [k, n] -> [m, n]; leading dimensions are batches and broadcast; a 1-d input counts as
/// [1, k] and a 1-d other as [k, 1], whose dimension of size 1 then leaves the result.  Any dtype but bool, equal for
/// both; one device; any strides.  float32 is computed by the rule of docs/decisions/001-float32-products.md, half types
/// in float32, rounded once.  The result is row-major.
///
/// Backward saves both operands: d input = d out @ other^T, d other = input^T @ d out, summed over broadcast batches.
/// Throws DeviceError, DTypeError, ShapeError (a 0-dim operand, inner sizes or batches that differ).
TANDEM_OP Tensor matmul(const Tensor& input, const Tensor& other);

/// out[i] = input[i] @ mat2[i]: the products of `b` pairs of matrices.
///
/// input [b, m, k], mat2 [b, k, n] -> [b, m, n], row-major; nothing broadcasts.  Any dtype but bool, equal for both; one
/// device; any strides.  Backward saves both operands: d input[i] = d out[i] @ mat2[i]^T, d mat2[i] = input[i]^T @ d out[i].
/// Throws DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor bmm(const Tensor& input, const Tensor& mat2);

/// out = beta * input + alpha * (mat1 @ mat2).
///
/// mat1 [m, k], mat2 [k, n]; input broadcasts to [m, n].  With beta = 0 the values of input are not read: NaN in them does
/// not spread.  Any dtype but bool, equal for all three; one device.
///
/// Backward saves mat1 and mat2: d input = beta * d out summed to its shape, d mat1 = alpha * d out @ mat2^T,
/// d mat2 = alpha * mat1^T @ d out.  Throws DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, Scalar beta = 1, Scalar alpha = 1);

/// y = x @ weight^T + bias.
///
/// x [..., in], weight [out, in], bias [out] [optional] -> [..., out].  Floating, equal dtypes, one device.  The bias is
/// added while a tile of the product is in cache.
///
/// Backward saves x and weight: d x = d y @ weight (not computed where x needs none), d weight = d y^T @ x and d bias = sum
/// of the rows of d y, both written into the leaf's slot where it has no other contribution.  Throws DeviceError,
/// DTypeError, ShapeError.
TANDEM_OP Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// y = max(0, x @ weight^T + bias), one operation: shapes, dtypes and errors of `linear`.
///
/// Backward saves x, weight and y, and masks d y where y is 0 in the same pass that sums it for the bias.
TANDEM_OP Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}}  // namespace tandem::v0
