// Comparison, logic and selection. Devices, shapes and dtypes as in ops/elementwise.h.
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

/// Whether each element is NaN (isinf: infinite; isfinite: neither). Any dtype; bool results, no gradients.
TANDEM_OP Tensor isnan(const Tensor& input);
TANDEM_OP Tensor isinf(const Tensor& input);     ///< +infinity or -infinity
TANDEM_OP Tensor isfinite(const Tensor& input);  ///< neither infinite nor NaN

/// Logic of bools; an element of another dtype counts as true if it is not 0 (NaN is not). bool results, no gradients.
TANDEM_OP Tensor logical_not(const Tensor& input);
TANDEM_OP Tensor logical_and(const Tensor& input, const Tensor& other);  ///< input and other
TANDEM_OP Tensor logical_or(const Tensor& input, const Tensor& other);   ///< input or other
TANDEM_OP Tensor logical_xor(const Tensor& input, const Tensor& other);  ///< one of input and other

/// abs(input - other) <= atol + rtol * abs(other), or the elements are equal, or both are NaN and equal_nan is set. Any
/// dtype: integers and bools are compared in float64. bool results, no gradients.
TANDEM_OP Tensor isclose(Tensor input, Tensor other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether isclose holds for all elements. Waits for the device.
TANDEM_OP bool allclose(const Tensor& input, const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                        bool equal_nan = false);
/// Whether shapes and all elements are equal. Waits for the device.
TANDEM_OP bool equal(const Tensor& input, const Tensor& other);

/// condition ? a : b, element by element. `condition` is bool (else DTypeError) and broadcasts with a and b. Saves
/// condition. Throws ValueError for a Scalar that the integer dtype of the result cannot represent.
TANDEM_OP Tensor where(const Tensor& condition, Tensor a, Tensor b);
TANDEM_OP Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
TANDEM_OP Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

/// The comparisons above.
TANDEM_API inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
TANDEM_API inline Tensor operator==(const Tensor& a, Scalar b) { return eq(a, b); }
TANDEM_API inline Tensor operator==(Scalar a, const Tensor& b) { return eq(b, a); }
TANDEM_API inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
TANDEM_API inline Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, b); }
TANDEM_API inline Tensor operator!=(Scalar a, const Tensor& b) { return ne(b, a); }
TANDEM_API inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }   ///< lt
TANDEM_API inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }          ///< lt
TANDEM_API inline Tensor operator<(Scalar a, const Tensor& b) { return gt(b, a); }          ///< lt
TANDEM_API inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }  ///< le
TANDEM_API inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }         ///< le
TANDEM_API inline Tensor operator<=(Scalar a, const Tensor& b) { return ge(b, a); }         ///< le
TANDEM_API inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }   ///< gt
TANDEM_API inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }          ///< gt
TANDEM_API inline Tensor operator>(Scalar a, const Tensor& b) { return lt(b, a); }          ///< gt
TANDEM_API inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }  ///< ge
TANDEM_API inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }         ///< ge
TANDEM_API inline Tensor operator>=(Scalar a, const Tensor& b) { return le(b, a); }         ///< ge
/// logical_not(a).
TANDEM_API inline Tensor operator!(const Tensor& a) { return logical_not(a); }

}}  // namespace tandem::v0
