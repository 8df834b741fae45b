// Reductions.
//
// Sums are accumulated in float32 for half types, in int64 for integers and bool, else in the tensor's own dtype, along
// a fixed tree that depends only on sizes and strides: the bits are the same for any number of threads. Undefined
// inputs throw StateError. All gradients are differentiable.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Sum of all elements, 0-dim; 0 for an empty tensor. Any dtype; integers and bool give int64. Saves nothing. Under
/// autocast half types are raised to float32.
TANDEM_OP Tensor sum(Tensor input);
/// Sum over the dimensions `dims`, over all if empty; with keepdim they stay with size 1. Throws IndexError for a
/// dimension outside [-ndim, ndim), ShapeError for a repeated dimension.
TANDEM_OP Tensor sum(Tensor input, const Shape& dims, bool keepdim = false);

/// Mean of all elements, 0-dim; NaN for an empty tensor. Floating dtypes (else DTypeError). Saves nothing. Under
/// autocast half types are raised to float32.
TANDEM_OP Tensor mean(Tensor input);
/// Mean over the dimensions `dims`; arguments and errors as for sum.
TANDEM_OP Tensor mean(Tensor input, const Shape& dims, bool keepdim = false);

/// Variance over the dimensions `dims`, over all if empty: the sum of (input - mean)^2 divided by max(n - correction,
/// 0), where n is the number of elements; with keepdim the dimensions stay with size 1. Computed from deviations; half
/// types in float32. Floating dtypes (else DTypeError). NaN if n <= correction and all elements are equal. Throws as
/// sum. Saves its input. Under autocast half types are raised to float32.
TANDEM_OP Tensor var(Tensor input, const Shape& dims = {}, int64_t correction = 1, bool keepdim = false);

/// Largest element, 0-dim; NaN if there is one. +0 counts as larger than -0. Any dtype. Throws ShapeError for an empty
/// tensor. Saves its input and its output; the gradient is divided equally among equal largest elements.
TANDEM_OP Tensor max(const Tensor& input);

/// Index of the first largest element (of the first NaN if there is one) along `dim`, which stays with size 1 if
/// keepdim: int64, no gradient. Any dtype. Throws IndexError for a dimension out of range, ShapeError if that dimension
/// has size 0.
TANDEM_OP Tensor argmax(const Tensor& input, int64_t dim, bool keepdim = false);

}}  // namespace tandem::v0
