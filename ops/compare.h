// Comparison and selection. Devices, shapes and dtypes as in ops/elementwise.h.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Comparisons: bool results, no gradients. NaN is unequal to everything, and neither less nor greater. An integer
/// Scalar is compared by its value, even if the tensor's dtype cannot represent it: every uint8 is less than 300.
TANDEM_OP Tensor eq(Tensor a, Tensor b);
TANDEM_OP Tensor eq(Tensor a, Scalar b);
TANDEM_OP Tensor ne(Tensor a, Tensor b);  ///< a != b
TANDEM_OP Tensor ne(Tensor a, Scalar b);
TANDEM_OP Tensor lt(Tensor a, Tensor b);  ///< a < b
TANDEM_OP Tensor lt(Tensor a, Scalar b);
TANDEM_OP Tensor le(Tensor a, Tensor b);  ///< a <= b
TANDEM_OP Tensor le(Tensor a, Scalar b);
TANDEM_OP Tensor gt(Tensor a, Tensor b);  ///< a > b
TANDEM_OP Tensor gt(Tensor a, Scalar b);
TANDEM_OP Tensor ge(Tensor a, Tensor b);  ///< a >= b
TANDEM_OP Tensor ge(Tensor a, Scalar b);

/// condition ? a : b, element by element. `condition` is bool (else DTypeError) and broadcasts with a and b. Saves
/// condition. Throws ValueError for a Scalar that the integer dtype of the result cannot represent.
TANDEM_OP Tensor where(const Tensor& condition, Tensor a, Tensor b);
TANDEM_OP Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
TANDEM_OP Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

}}  // namespace tandem::v0
