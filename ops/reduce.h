// Reductions.
//
// Sums are formed in float32 for half types, int64 for integers and bool, else in the tensor's own dtype, along a fixed
// tree that depends on sizes and strides alone: the same bits on any number of threads.  Undefined inputs throw
// StateError. All gradients can be differentiated again.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Sum of all elements, 0-dim; 0 for none.  Any dtype; integers and bool give int64.  Saves nothing.  Under autocast
/// half types are raised to float32.
TANDEM_OP Tensor sum(Tensor input);
/// Sum over the dimensions `dims`, all where empty; they stay with size 1 if keepdim.  Throws IndexError for a
/// dimension outside [-ndim, ndim), ShapeError for one named twice.
TANDEM_OP Tensor sum(Tensor input, const Shape& dims, bool keepdim = false);

/// Mean of all elements, 0-dim; NaN for none.  Floating dtypes (else DTypeError).  Saves nothing.  Under autocast half
/// types are raised to float32.
TANDEM_OP Tensor mean(Tensor input);
/// Mean over the dimensions `dims`, as for sum.
TANDEM_OP Tensor mean(Tensor input, const Shape& dims, bool keepdim = false);

/// Variance over the dimensions `dims`, all where empty: the sum of (input - mean)^2 divided by max(n - correction, 0), n being
/// the number of elements; they stay with size 1 if keepdim.  Computed from deviations, and in float32 for half types.  Floating
/// dtypes (else DTypeError).  NaN where n <= correction and all elements are equal.  Throws as sum does.  Saves its input.
/// Under autocast half types are raised to float32.
TANDEM_OP Tensor var(Tensor input, const Shape& dims = {}, int64_t correction = 1, bool keepdim = false);

/// Largest element, 0-dim; NaN if there is one; of zeros of both signs the positive one, wherever it is.  Any dtype.  Throws
/// ShapeError for no elements.  Saves its input and its output; the gradient is shared evenly among equal largest elements.
TANDEM_OP Tensor max(const Tensor& input);

/// Index of the first largest element (of the first NaN if there is one) along `dim`, which stays with size 1 if
/// keepdim: int64, no gradient.  Any dtype.  Throws IndexError for a dimension out of range, ShapeError where it is
/// empty.
TANDEM_OP Tensor argmax(const Tensor& input, int64_t dim, bool keepdim = false);

}}  // namespace tandem::v0
