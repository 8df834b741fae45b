// Selection by index, by rank and by mask.
//
// Dimensions count from the end where negative (IndexError outside [-ndim, ndim)).  Indices are int64 and never negative.
// Results are row-major and share no memory with the operands.  Undefined operands throw StateError, operands on different
// devices DeviceError.  All gradients are sums in ascending order, the same bits on any number of threads and on GPUs, and can
// be differentiated again; half types are summed in float32 and rounded once.  On a GPU an index outside its range is told at
// the next synchronisation (tensor/cuda.h), any one of those that are; it brings 0.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// out[i, j, k] = input[i, index[i, j, k], k] for dim = 1, and likewise for others: along dimension dim the position comes
/// from `index`, which has input's number of dimensions, any size along dim, and no larger sizes than input elsewhere
/// (ShapeError); the result has its shape.  Any dtype.  Throws DTypeError unless index is int64, IndexError naming the first
/// index outside [0, size of dim) and its position.  Saves index.
TANDEM_OP Tensor gather(const Tensor& input, int64_t dim, const Tensor& index);

/// The slices of dimension dim that `index` ([n] int64) names, in its order.  Any dtype.  Throws ShapeError for an index that
/// is not 1-d, DTypeError, IndexError naming the first index outside [0, size of dim) and its position.  Saves index.
TANDEM_OP Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index);

/// 1 at [..., labels[...]], else 0: int64 [labels' shape, num_classes].  No gradient.  Throws DTypeError unless labels are
/// int64, ValueError unless num_classes >= 1, IndexError naming the first label outside [0, num_classes) and its position.
TANDEM_OP Tensor one_hot(const Tensor& labels, int64_t num_classes);

/// Result of topk: elements and their positions, both with size k in dimension dim.
struct TopK {
  Tensor values;   ///< the gradient flows to the elements that were chosen
  Tensor indices;  ///< int64, no gradient
};
/// The k largest elements along dimension dim in descending order, or the k smallest in ascending order, with their
/// positions; among equal ones the lowest position comes first.  NaN counts as larger than every number.  Any dtype; a 0-dim
/// input counts as one element.  Throws ValueError unless 0 <= k <= size of dim.  Saves the indices.
TANDEM_OP TopK topk(const Tensor& input, int64_t k, int64_t dim = -1, bool largest = true);

/// `value` where mask, else input.  mask is bool (else DTypeError) and broadcasts with input (ShapeError); the result has
/// input's dtype, which must be able to hold the value's kind (DTypeError: float into integers) and the value (ValueError: 300 or
/// -1 in uint8).  Saves mask.
TANDEM_OP Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value);

/// The lower triangle of each matrix in the last two dimensions, the rest 0: element [i, j] stays where j <= i + diagonal.
/// Any dtype.  Throws ShapeError for less than two dimensions.  Saves nothing.
TANDEM_OP Tensor tril(const Tensor& input, int64_t diagonal = 0);

}}  // namespace tandem::v0
