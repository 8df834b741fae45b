// Reductions.
//
// `dims` are the dimensions that are reduced, all if empty; with keepdim they stay with size 1. IndexError for a
// dimension outside [-ndim, ndim), ShapeError for a repeated one.
//
// Sums and products are accumulated in float32 for half types, in int64 for integers and bool, else in the tensor's own
// dtype, along a fixed tree that depends only on sizes and strides: the bits are the same for any number of threads.
// Undefined inputs throw StateError. All gradients are differentiable.
#pragma once

#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Sum of all elements, 0-dim; 0 for an empty tensor. Any dtype; integers and bool give int64. Saves nothing. Under
/// autocast half types are raised to float32.
TANDEM_OP Tensor sum(Tensor input);
/// Sum over `dims`.
TANDEM_OP Tensor sum(Tensor input, const Shape& dims, bool keepdim = false);

/// Mean of all elements, 0-dim; NaN for an empty tensor. Floating dtypes (else DTypeError). Saves nothing. Under
/// autocast half types are raised to float32.
TANDEM_OP Tensor mean(Tensor input);
/// Mean over `dims`.
TANDEM_OP Tensor mean(Tensor input, const Shape& dims, bool keepdim = false);

/// Variance over `dims`: the sum of (input - mean)^2 divided by max(n - correction, 0), where n is the number of
/// elements. Computed from deviations; half types in float32. Floating dtypes (else DTypeError). NaN if n <= correction
/// and all elements are equal. Saves its input. Under autocast half types are raised to float32.
TANDEM_OP Tensor var(Tensor input, const Shape& dims = {}, double correction = 1, bool keepdim = false);
/// Standard deviation, the square root of var. The gradient is 0 where the deviation is 0.
TANDEM_OP Tensor std(Tensor input, const Shape& dims = {}, double correction = 1, bool keepdim = false);
/// {var(input), mean(input)} and {std(input), mean(input)}, with the same arguments.
TANDEM_OP std::pair<Tensor, Tensor> var_mean(Tensor input, const Shape& dims = {}, double correction = 1,
                                             bool keepdim = false);
TANDEM_OP std::pair<Tensor, Tensor> std_mean(Tensor input, const Shape& dims = {}, double correction = 1,
                                             bool keepdim = false);  ///< std and mean

/// The p-norm (sum of |x|^p)^(1/p) over `dims`, torch.linalg.vector_norm. p = 0: the number of elements that are not 0,
/// with gradient 0; p = infinity: the largest |x|, p = -infinity: the smallest; other negative p: 0 if an element is 0.
/// Half types are computed in float32. Floating dtypes (else DTypeError). Throws ShapeError for an empty range if p is
/// infinite or negative. Elements that are 0, and vectors whose norm is 0, get the gradient 0. Saves its input, and its
/// output for p = 2. Under autocast half types are raised to float32.
TANDEM_OP Tensor norm(Tensor input, double p = 2, const Shape& dims = {}, bool keepdim = false);

/// Product of all elements, 0-dim; 1 for an empty tensor. Any dtype; integers and bools give int64, which wraps around.
/// The gradient is exact also if elements are 0. Saves its input. Under autocast half types are raised to float32.
TANDEM_OP Tensor prod(Tensor input);
/// Product along dimension `dim`.
TANDEM_OP Tensor prod(Tensor input, int64_t dim, bool keepdim = false);

/// log(sum(e^input)) over `dims`, without overflow; -inf for an empty range. Integers and bools are converted to
/// float32; half types are computed in float32. The gradient is 0 where the result is -inf (PyTorch: NaN). Saves its
/// input and its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor logsumexp(Tensor input, const Shape& dims, bool keepdim = false);

/// Sum over `dims` of the elements that are not NaN; any dtype, as sum. Saves a mask.
TANDEM_OP Tensor nansum(Tensor input, const Shape& dims = {}, bool keepdim = false);
/// Mean over `dims` of the elements that are not NaN; NaN if all elements are NaN. Floating dtypes (else DTypeError).
TANDEM_OP Tensor nanmean(Tensor input, const Shape& dims = {}, bool keepdim = false);
/// Number of elements that are not 0 over `dims`: int64, no gradient. NaN counts. Any dtype.
TANDEM_OP Tensor count_nonzero(const Tensor& input, const Shape& dims = {});

/// out[v] = the number of elements of `input` [n] that equal v (int64), or the sum of their weights [optional; shape of
/// input]: float32 if weights are, else float64, added in order. The size is the largest element + 1, at least
/// minlength. No gradient. On a GPU it synchronizes, because the size depends on the data. Throws DTypeError unless
/// input is of an integer dtype, ShapeError, ValueError for a negative element or minlength.
TANDEM_OP Tensor bincount(const Tensor& input, const Tensor& weights = {}, int64_t minlength = 0);

/// Largest (smallest) element, 0-dim; NaN if an element is NaN. +0 counts as larger than -0. Any dtype. Throws
/// ShapeError for an empty tensor. Saves its input and its output; the gradient is divided equally among equal extreme
/// elements.
TANDEM_OP Tensor max(const Tensor& input);
TANDEM_OP Tensor min(const Tensor& input);  ///< the smallest
/// max and min over `dims`.
TANDEM_OP Tensor amax(const Tensor& input, const Shape& dims = {}, bool keepdim = false);
TANDEM_OP Tensor amin(const Tensor& input, const Shape& dims = {}, bool keepdim = false);  ///< the smallest

/// The largest (smallest) elements along dimension `dim`, with their indices: the first of equal elements, or the first
/// NaN. Any dtype. Throws IndexError for a dimension out of range, ShapeError if it has size 0. Saves the indices; the
/// gradient is added to the selected elements.
TANDEM_OP ValuesIndices max(const Tensor& input, int64_t dim, bool keepdim = false);
TANDEM_OP ValuesIndices min(const Tensor& input, int64_t dim, bool keepdim = false);  ///< the smallest
/// Position of the first largest (smallest) element, or of the first NaN, in row-major order: int64, 0-dim, no
/// gradient. Any dtype. Throws ShapeError for an empty tensor.
TANDEM_OP Tensor argmax(const Tensor& input);
TANDEM_OP Tensor argmin(const Tensor& input);  ///< position of the smallest element
/// The indices of max and min along dimension `dim`.
TANDEM_OP Tensor argmax(const Tensor& input, int64_t dim, bool keepdim = false);
TANDEM_OP Tensor argmin(const Tensor& input, int64_t dim, bool keepdim = false);  ///< indices of min

/// Whether any element over `dims` is not 0 (false for an empty range); whether all are not 0 (true). NaN is not 0. Any
/// dtype; bool, but uint8 for uint8. No gradient.
TANDEM_OP Tensor any(const Tensor& input, const Shape& dims = {}, bool keepdim = false);
TANDEM_OP Tensor all(const Tensor& input, const Shape& dims = {}, bool keepdim = false);  ///< whether no element is 0

}}  // namespace tandem::v0
