// Order: sorting, order statistics, distinct values, search. topk is in ops/index.h.
//
// NaN counts as larger than every number; zeros of both signs are equal. Any dtype. A negative dimension counts from
// the end (IndexError outside [-ndim, ndim)); a 0-dim input counts as one element. Undefined inputs throw StateError.
// The gradient of selected values is added to the selected elements and is differentiable; the indices are saved for
// it.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The elements in ascending or descending order along `dim`, with their positions (int64). Always stable: equal
/// elements keep their order. Throws ShapeError for more than 2^32 - 1 elements along dim.
TANDEM_OP ValuesIndices sort(const Tensor& input, int64_t dim = -1, bool descending = false);
/// The positions that sort returns; no gradient.
TANDEM_OP Tensor argsort(const Tensor& input, int64_t dim = -1, bool descending = false);

/// The k-th smallest elements along `dim`, counted from 1, with their positions; equal elements are ordered as by a
/// stable sort. `dim` stays with size 1 if keepdim. Throws ValueError unless 1 <= k <= size of dim.
TANDEM_OP ValuesIndices kthvalue(const Tensor& input, int64_t k, int64_t dim = -1, bool keepdim = false);

/// The median of all elements, 0-dim: the lower middle element if their number is even, NaN if an element is NaN. An
/// empty floating tensor gives NaN. Throws ShapeError for another empty tensor. Saves its input and its output; the
/// gradient is divided equally among the elements that equal the median.
TANDEM_OP Tensor median(const Tensor& input);
/// The medians along `dim` with their positions (the first NaN if there is one). Throws ShapeError if dim has size 0.
TANDEM_OP ValuesIndices median(const Tensor& input, int64_t dim, bool keepdim = false);
/// median of the elements that are not NaN; the first NaN if all elements are NaN.
TANDEM_OP Tensor nanmedian(const Tensor& input);
TANDEM_OP ValuesIndices nanmedian(const Tensor& input, int64_t dim, bool keepdim = false);

/// Result of unique.
struct Unique {
  Tensor output;           ///< 1-d, the distinct values in ascending order
  Tensor inverse_indices;  ///< int64, shape of input: output[inverse_indices] is the input; undefined unless requested
  Tensor counts;           ///< int64, shape of output: how often each value occurs; undefined unless requested
};
/// The distinct values of all elements. Each NaN is distinct. The values are sorted also if `sorted` is false. No
/// gradient. On a GPU it synchronizes, because the shape of the result depends on the data.
TANDEM_OP Unique unique(const Tensor& input, bool sorted = true, bool return_inverse = false,
                        bool return_counts = false);

/// For each of `values` the first position at which it can be inserted into `sorted_sequence` without changing the
/// order; with `right` the last such position. int64, shape of values. `sorted_sequence` is ascending along its last
/// dimension; it is 1-d, or its other dimensions are equal to the other dimensions of values (ShapeError). Both have
/// one dtype (DTypeError). No gradient.
TANDEM_OP Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right = false);
/// searchsorted(boundaries, input, right).
TANDEM_OP Tensor bucketize(const Tensor& input, const Tensor& boundaries, bool right = false);

}}  // namespace tandem::v0
