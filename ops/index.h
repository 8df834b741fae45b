// Indexing, top-k and masks.
//
// A negative dimension counts from the end (IndexError outside [-ndim, ndim)). Indices are int64 and not negative.
// Results are row-major and share no memory with the operands. Undefined operands throw StateError, operands on
// different devices DeviceError. All gradients are sums in ascending order, with the same bits for any number of
// threads and on GPUs, and are differentiable; half types are summed in float32 and rounded once. On a GPU an invalid
// index makes the next synchronization (tensor/cuda.h) throw, which names any one of the invalid indices; its result is
// 0.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// out[i, j, k] = input[i, index[i, j, k], k] for dim = 1; for other values of dim `index` replaces that coordinate.
/// `index` has the number of dimensions of input, any size along dim, and in other dimensions no larger sizes than
/// input (ShapeError); the result has the shape of `index`. Any dtype. Throws DTypeError unless index is int64,
/// IndexError naming the first index outside [0, size of dim) and its position. Saves index.
TANDEM_OP Tensor gather(const Tensor& input, int64_t dim, const Tensor& index);

/// The slices input.select(dim, index[i]), stacked along dim; `index` is [n] int64. Any dtype. Throws ShapeError
/// if index is not 1-d, DTypeError, IndexError naming the first index outside [0, size of dim) and its position. Saves
/// index.
TANDEM_OP Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index);

/// 1 at [..., labels[...]], else 0: int64 [labels' shape, num_classes]. No gradient. Throws DTypeError unless labels
/// are int64, ValueError unless num_classes >= 1, IndexError naming the first label outside [0, num_classes) and its
/// position.
TANDEM_OP Tensor one_hot(const Tensor& labels, int64_t num_classes);

/// The k largest elements along dimension dim in descending order, or the k smallest in ascending order, with their
/// indices; among equal elements the lowest index comes first. NaN counts as larger than every number. Any dtype; a
/// 0-dim input counts as one element. The result is in order even if not `sorted`. Throws ValueError unless 0 <= k <=
/// size of dim. Saves the indices.
TANDEM_OP ValuesIndices topk(const Tensor& input, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);

/// mask ? value : input. mask is bool (else DTypeError) and broadcasts with input (ShapeError). The result has input's
/// dtype, which must be of the value's kind or a higher one (DTypeError: float into integers) and able to represent it
/// (ValueError: 300 or -1 in uint8). Saves mask.
TANDEM_OP Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value);

/// The lower triangle of each matrix in the last two dimensions: element [i, j] is kept if j <= i + diagonal, else 0.
/// Any dtype. Throws ShapeError for fewer than two dimensions. Saves nothing.
TANDEM_OP Tensor tril(const Tensor& input, int64_t diagonal = 0);

}}  // namespace tandem::v0
