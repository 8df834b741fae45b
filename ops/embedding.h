// Rows of a table, looked up by number.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// result[..., :] = weight[indices[...], :], of shape [indices' shape, d].
///
/// `indices` int64 of any shape (DTypeError), `weight` [V, d] (ShapeError) of any floating dtype.  Row-major.  Throws IndexError,
/// naming the first bad index and its position, for one outside [0, V).  Saves the indices; the gradient of a row is the sum
/// over its uses in their order, whatever the number of threads, formed in float32 for half types; it can be differentiated again.
TANDEM_OP Tensor embedding(const Tensor& indices, const Tensor& weight);

}}  // namespace tandem::v0
