// Indexing, scattering, top-k and masks.
//
// A negative dimension counts from the end (IndexError outside [-ndim, ndim)). Index tensors are int32 or int64 (else
// DTypeError) and not negative; `index`, `index_put`, `take`, `take_along_dim` and `put` also accept negative indices,
// which count from the end. An index out of range is an IndexError that names the first one and its position. Results
// are row-major and share no memory with the operands, except views by `index`. Where indices repeat, values are added
// (multiplied, compared) in ascending order of their positions, and the last one is stored by operations that
// overwrite; the gradient of values is then passed to all, as in PyTorch. Undefined operands throw StateError, operands
// on different devices DeviceError. All gradients are sums in ascending order, with the same bits for any number of
// threads and on GPUs, and are differentiable; half types are summed in float32 and rounded once. On a GPU an invalid
// index makes the next synchronization (tensor/cuda.h) throw, with an arbitrary one of the invalid indices; the result
// for an invalid index is 0.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

#ifndef None  // X11 defines it as 0L
/// As an index: adds a dimension of size 1. In a Slice: a missing bound. It is not declared in a program that has
/// included X11's headers, where None is a macro: write std::nullopt.
inline constexpr std::nullopt_t None = std::nullopt;
#endif
/// The type of Ellipsis.
enum class EllipsisType { kEllipsis };
/// An index for all dimensions that the other indices do not mention.
inline constexpr EllipsisType Ellipsis = EllipsisType::kEllipsis;
/// Indices start, start + step, ... below stop of a dimension, as in `slice`; a missing bound is an end of the
/// dimension.
struct Slice {
  /// Indices from, from + by, ... below to.
  Slice(std::optional<int64_t> from = {}, std::optional<int64_t> to = {}, std::optional<int64_t> by = {})
      : start(from.value_or(0)), stop(to.value_or(INT64_MAX)), step(by.value_or(1)) {}
  int64_t start;  ///< first index; negative: from the end
  int64_t stop;   ///< end, exclusive; negative: from the end
  int64_t step;   ///< at least 1
};

/// One index of Tensor::index: an integer, a Slice, None, Ellipsis, or a tensor of indices or bools.
class TensorIndex {
 public:
  /// What the index is.
  enum class Kind { kNone, kEllipsis, kSlice, kInteger, kTensor };

  TensorIndex(std::nullopt_t) {}                                                    ///< a new dimension
  TensorIndex(EllipsisType) : kind(Kind::kEllipsis) {}                              ///< all other dimensions
  TensorIndex(Slice slice) : kind(Kind::kSlice), range(slice) {}                    ///< a range of a dimension
  TensorIndex(Tensor indices) : kind(Kind::kTensor), tensor(std::move(indices)) {}  ///< indices or a mask
  /// One index of a dimension, which is removed; negative: from the end.
  TensorIndex(IntegerType auto index) : kind(Kind::kInteger), range(static_cast<int64_t>(index)) {}

  Kind kind = Kind::kNone;  ///< which of the following is set
  Slice range = {};         ///< a range, or from `start` an integer
  Tensor tensor = {};       ///< indices or a mask
};

/// input[indices], NumPy's indexing: integers, slices, None and Ellipsis select a view; if there are tensors, the
/// result is a copy. Index tensors broadcast to one shape (ShapeError). It replaces the indexed dimensions if these are
/// adjacent; otherwise it comes first. Integers do not count as tensors, as in PyTorch. A bool tensor has the sizes of
/// the dimensions that it indexes (ShapeError), and selects its true elements in ascending order; on a GPU it
/// synchronizes, because the shape of the result depends on it. Any dtype. Throws IndexError for too many indices or
/// more than one Ellipsis, DTypeError for index tensors of other dtypes, ValueError for a step below 1. Saves int64
/// indices.
TANDEM_OP Tensor index(const Tensor& input, const std::vector<TensorIndex>& indices);
/// A copy of `input` in which input[indices] is overwritten by `value`, or with accumulate by its sum with `value`.
/// `value` is converted to input's dtype and broadcast to the shape of input[indices] (ShapeError). A bool tensor as
/// the only tensor, with one value and without accumulate, does not synchronize. Throws as `index`. Saves the indices.
TANDEM_OP Tensor index_put(const Tensor& input, const std::vector<TensorIndex>& indices, const Tensor& value,
                           bool accumulate = false);
/// index_put of a number. Throws ValueError if the dtype cannot represent it.
TANDEM_OP Tensor index_put(const Tensor& input, const std::vector<TensorIndex>& indices, Scalar value,
                           bool accumulate = false);

/// Elements of the flattened input at `index`, in the shape of `index`. Any dtype.
TANDEM_OP Tensor take(const Tensor& input, const Tensor& index);
/// A copy of `input` in which the elements at `index`, counted in the flattened input, are overwritten by `source`, or
/// with accumulate increased. Throws DTypeError for different dtypes, ShapeError unless source has as many elements as
/// index.
TANDEM_OP Tensor put(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate = false);

/// out[i, j, k] = input[i, index[i, j, k], k] for dim = 1; for other values of dim `index` replaces that coordinate.
/// `index` has as many dimensions as input, any size along dim, and at most input's sizes in the other dimensions
/// (ShapeError); the result has the shape of `index`. Any dtype. Saves index.
TANDEM_OP Tensor gather(const Tensor& input, int64_t dim, const Tensor& index);

/// The slices input.select(dim, index[i]), stacked along dim; `index` is [n] (ShapeError). Any dtype. Saves index.
TANDEM_OP Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index);

/// gather with `indices` and `input` broadcast in the dimensions other than dim; without dim both are flattened first.
/// Throws ShapeError unless they have the same number of dimensions and broadcast.
TANDEM_OP Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim = {});

/// A copy of `input` with out[i, index[i, j, k], k] = src[i, j, k] for dim = 1. `index`, input and src have the same
/// number of dimensions, and the sizes of index are not larger than the sizes of src and, except in dimension dim, of
/// input (ShapeError). Any dtype, equal for input and src (DTypeError); autocast promotes both to the wider one. Saves
/// index.
TANDEM_OP Tensor scatter(Tensor input, int64_t dim, const Tensor& index, Tensor src);
/// scatter of a number; errors as masked_fill.
TANDEM_OP Tensor scatter(const Tensor& input, int64_t dim, const Tensor& index, Scalar value);
/// scatter with out[..] += src[..]. Half types are summed in float32 and rounded once. Saves index.
TANDEM_OP Tensor scatter_add(Tensor input, int64_t dim, const Tensor& index, Tensor src);

/// Reductions of scatter_reduce.
enum class ScatterReduce : int { kSum, kProd, kMean, kAmax, kAmin };
/// scatter that reduces all values of src for an element and, if include_self, input's value to one result; elements
/// without values of src keep input's value. Maxima and minima with NaN are NaN; the gradient is divided equally among
/// equal extrema. Half types are reduced in float32 and rounded once. Throws DTypeError for the mean of integers. Saves
/// index, and for products and extrema input, src and the result.
TANDEM_OP Tensor scatter_reduce(Tensor input, int64_t dim, const Tensor& index, Tensor src, ScatterReduce reduce,
                                bool include_self = true);

/// A copy of `input` with out.select(dim, index[i]) += alpha * source.select(dim, i). `index` is [n], and source has
/// input's shape with n in dimension dim (ShapeError). Any dtype, equal for input and source (DTypeError); autocast
/// promotes both to the wider one. Saves index.
TANDEM_OP Tensor index_add(Tensor input, int64_t dim, const Tensor& index, Tensor source, Scalar alpha = 1);
/// index_add that overwrites instead of adding.
TANDEM_OP Tensor index_copy(Tensor input, int64_t dim, const Tensor& index, Tensor source);
/// A copy of `input` with the slices at `index` [n] filled with a number; errors as masked_fill.
TANDEM_OP Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, Scalar value);

/// The coordinates of the elements that are not 0, in ascending order: int64 [count, ndim]. Any dtype. No gradient. On
/// a GPU it synchronizes, because the shape depends on the values.
TANDEM_OP Tensor nonzero(const Tensor& input);
/// The columns of nonzero(condition), one for each dimension; a 0-dim condition counts as [1].
TANDEM_OP std::vector<Tensor> where(const Tensor& condition);
/// The elements of `input` where mask (bool), broadcast with it, is true: [count]. On a GPU it synchronizes.
TANDEM_OP Tensor masked_select(const Tensor& input, const Tensor& mask);
/// A copy of `input`, broadcast with mask (bool), in which the elements where mask is true are overwritten by the first
/// elements of `source`. Throws DTypeError for different dtypes, ShapeError if source has too few elements. On a GPU it
/// synchronizes.
TANDEM_OP Tensor masked_scatter(const Tensor& input, const Tensor& mask, const Tensor& source);

/// 1 at [..., labels[...]], else 0: int64 [labels' shape, num_classes]. No gradient. Throws DTypeError unless labels
/// are int64, ValueError unless num_classes >= 1, IndexError naming the first label outside [0, num_classes) and its
/// position.
TANDEM_OP Tensor one_hot(const Tensor& labels, int64_t num_classes);

/// The k largest elements along dimension dim in descending order, or the k smallest in ascending order, with their
/// indices; among equal elements the lowest index comes first. NaN counts as larger than every number. Any dtype; a
/// 0-dim input counts as one element. The result is sorted also if `sorted` is false. Throws ValueError unless 0 <= k
/// <= size of dim. Saves the indices.
TANDEM_OP ValuesIndices topk(const Tensor& input, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);

/// mask ? value : input. mask is bool (else DTypeError) and broadcasts with input (ShapeError). The result has input's
/// dtype, which must be of the value's kind or a higher one (DTypeError: float into integers) and able to represent it
/// (ValueError: 300 or -1 in uint8). Saves mask.
TANDEM_OP Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value);

/// The lower triangle of each matrix in the last two dimensions: element [i, j] is kept if j <= i + diagonal, else 0.
/// Any dtype. Throws ShapeError for fewer than two dimensions. Saves nothing.
TANDEM_OP Tensor tril(const Tensor& input, int64_t diagonal = 0);
/// The upper triangle: element [i, j] is kept if j >= i + diagonal; otherwise as tril.
TANDEM_OP Tensor triu(const Tensor& input, int64_t diagonal = 0);

// The in-place forms are members of Tensor: index_put_ scatter_ scatter_add_ scatter_reduce_ index_add_ index_copy_
// index_fill_. self keeps its dtype; otherwise they follow the rules of the in-place forms in ops/elementwise.h.

}}  // namespace tandem::v0
