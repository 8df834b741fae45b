// Cumulative operations along one dimension.
//
// A negative dimension counts from the end (IndexError outside [-ndim, ndim)); a 0-dim input counts as one element.
// Results have the input's shape and are row-major. The order of additions is fixed by the sizes: the bits are the same
// for any number of threads, and on each run on a GPU. Half types are computed in float32 and rounded once per element.
// Undefined inputs throw StateError. All gradients are differentiable.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// out[i] = input[0] + ... + input[i]. Any dtype; integers and bools give int64. Saves nothing. Under autocast half
/// types are raised to float32.
TANDEM_OP Tensor cumsum(Tensor input, int64_t dim);
/// out[i] = input[0] * ... * input[i]. Any dtype; integers and bools give int64, which wraps around. The gradient is
/// exact also if elements are 0. Saves its input and its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor cumprod(Tensor input, int64_t dim);
/// out[i] = log(e^input[0] + ... + e^input[i]), without overflow. Floating dtypes (else DTypeError). Saves its input
/// and its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor logcumsumexp(Tensor input, int64_t dim);

/// The largest (smallest) of input[0] .. input[i], and its index: the last of equal elements, or the last NaN. Any
/// dtype. Saves the indices; the gradient is added to the selected elements.
TANDEM_OP ValuesIndices cummax(const Tensor& input, int64_t dim);
TANDEM_OP ValuesIndices cummin(const Tensor& input, int64_t dim);  ///< the smallest

}}  // namespace tandem::v0
