// Views, which share the memory of their input; and operations that copy: cat, stack, repeat, tile, repeat_interleave,
// flip, roll, diag, diag_embed, and reshape, flatten and contiguous where necessary.
//
// A negative dimension counts from the end (IndexError outside [-ndim, ndim)). Any dtype and device. Views save
// nothing; writing to a view changes its input. Undefined inputs throw StateError. All gradients are differentiable.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// `input` in another shape with the same number of elements; one size may be -1 and is inferred. Throws ShapeError if
/// the number of elements differs, or if the strides require a copy.
TANDEM_OP Tensor view(const Tensor& input, const Shape& shape);
/// Like view, but a row-major copy if a view is not possible.
TANDEM_OP Tensor reshape(const Tensor& input, const Shape& shape);
/// Joins dimensions start_dim .. end_dim (inclusive) into one; a 0-dim tensor becomes [1]. A view if possible, else a
/// copy.
TANDEM_OP Tensor flatten(const Tensor& input, int64_t start_dim = 0, int64_t end_dim = -1);
/// Exchanges two dimensions.
TANDEM_OP Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1);
/// Transpose of a matrix; a tensor with fewer dimensions keeps its shape. Throws ShapeError for more than two
/// dimensions.
TANDEM_OP Tensor t(const Tensor& input);
/// Dimension d of the result is dimension dims[d] of the input. Throws ShapeError unless `dims` contains each dimension
/// once.
TANDEM_OP Tensor permute(const Tensor& input, const Shape& dims);
/// Indices begin, begin + step, ... below end of dimension dim. Negative begin and end count from the end; both are
/// clamped to the dimension. Throws ValueError unless step >= 1.
TANDEM_OP Tensor slice(const Tensor& input, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
/// Index `index` of dimension dim, which is removed. Throws IndexError outside [-size, size).
TANDEM_OP Tensor select(const Tensor& input, int64_t dim, int64_t index);
/// `input` repeated along dimensions of size 1 and along new leading dimensions, without copying: several elements
/// share memory. -1 keeps a dimension's size. Throws ShapeError if another size would change.
TANDEM_OP Tensor expand(const Tensor& input, const Shape& shape);
/// Removes all dimensions of size 1.
TANDEM_OP Tensor squeeze(const Tensor& input);
/// Removes dimension dim if its size is 1; otherwise returns the same shape.
TANDEM_OP Tensor squeeze(const Tensor& input, int64_t dim);
/// Inserts a dimension of size 1 before dimension dim, which is in [-ndim - 1, ndim].
TANDEM_OP Tensor unsqueeze(const Tensor& input, int64_t dim);

/// Consecutive slices of `split_size` along dimension dim; the last one is smaller if the size is not a multiple. A
/// dimension of size 0 gives one slice. Throws ValueError unless split_size >= 1, IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> split(const Tensor& input, int64_t split_size, int64_t dim = 0);
/// Consecutive slices of the given sizes. Throws ValueError for a negative size, ShapeError unless their sum is the
/// size of the dimension.
TANDEM_OP std::vector<Tensor> split(const Tensor& input, const Shape& split_sizes, int64_t dim = 0);
TANDEM_API inline std::vector<Tensor> split(const Tensor& input, std::initializer_list<int64_t> split_sizes,
                                            int64_t dim = 0) {
  return split(input, Shape(split_sizes), dim);
}
/// At most `chunks` slices of size ceil(size / chunks); the last one may be smaller. A dimension of size 0 gives
/// `chunks` empty slices. Throws ValueError unless chunks >= 1, IndexError for a 0-dim input, OutOfMemory.
TANDEM_OP std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim = 0);

/// Concatenates the tensors along dimension dim: a row-major copy. dtypes promote; the other sizes (ShapeError) and the
/// devices (DeviceError) must be equal. A tensor of shape [0] fits tensors of any shape. Throws ValueError for an empty
/// list. Saves nothing.
TANDEM_OP Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);

/// Stacks the tensors along a new dimension before dimension dim, which is in [-ndim - 1, ndim]: a row-major copy.
/// dtypes promote; shapes (ShapeError) and devices (DeviceError) must be equal. Throws ValueError for an empty list.
/// Saves nothing.
TANDEM_OP Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);

/// Length elements of dimension dim from `start` on, which counts from the end if negative. Throws IndexError if they
/// exceed the dimension.
TANDEM_OP Tensor narrow(const Tensor& input, int64_t dim, int64_t start, int64_t length);
/// The slices select(dim, 0), select(dim, 1), ... Throws IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> unbind(const Tensor& input, int64_t dim = 0);
/// `sections` slices; the first size % sections slices are longer by one. Throws ValueError unless sections >= 1,
/// IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> tensor_split(const Tensor& input, int64_t sections, int64_t dim = 0);
/// The slices [0, indices[0]), [indices[0], indices[1]), ..., [indices.back(), size), as in `slice`.
TANDEM_OP std::vector<Tensor> tensor_split(const Tensor& input, const Shape& indices, int64_t dim = 0);
TANDEM_API inline std::vector<Tensor> tensor_split(const Tensor& input, std::initializer_list<int64_t> indices,
                                                   int64_t dim = 0) {
  return tensor_split(input, Shape(indices), dim);
}
/// Splits dimension dim into dimensions of these sizes; one size may be -1 and is inferred. Throws ShapeError if the
/// sizes do not fit, IndexError for a 0-dim input.
TANDEM_OP Tensor unflatten(const Tensor& input, int64_t dim, const Shape& sizes);
/// Moves dimension source[i] to destination[i]; the other dimensions keep their order. Throws ShapeError for repeated
/// dimensions or lists of different lengths.
TANDEM_OP Tensor movedim(const Tensor& input, const Shape& source, const Shape& destination);
/// expand under NumPy's name.
TANDEM_OP Tensor broadcast_to(const Tensor& input, const Shape& shape);

/// Dimension of the first tensor of meshgrid: 0 (kIJ, matrices), or 1 (kXY, images) with the second one in dimension 0.
enum class MeshIndexing { kIJ, kXY };
/// Coordinate grids: result i is tensors[i], of shape [n_i] or [], expanded to [n_0, n_1, ...] along dimension i.
/// Throws ValueError for an empty list, ShapeError for more than one dimension.
TANDEM_OP std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing = MeshIndexing::kIJ);

/// Elements [i, i + offset] of dimensions dim1 and dim2, in a new last dimension. Throws ShapeError for fewer than two
/// dimensions, or if dim1 and dim2 are equal.
TANDEM_OP Tensor diagonal(const Tensor& input, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Zeros with the last dimension of `input` as the diagonal `offset` of square matrices in dimensions dim1 and dim2: a
/// copy. Throws IndexError for a 0-dim input, ShapeError if dim1 and dim2 are equal.
TANDEM_OP Tensor diag_embed(const Tensor& input, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// A copy of the diagonal of a matrix, or a square matrix with a vector as the diagonal. Throws ShapeError unless input
/// has one or two dimensions.
TANDEM_OP Tensor diag(const Tensor& input, int64_t diagonal = 0);
/// Sum of the diagonal of a matrix, 0-dim; dtypes as in `sum`. Throws ShapeError unless input has two dimensions. Under
/// autocast half types are raised to float32.
TANDEM_OP Tensor trace(Tensor input);
/// Windows of `size` indices of a dimension, `step` apart, in a new last dimension; the dimension becomes the number of
/// windows. Overlapping windows share memory; their gradients are added in ascending order. Throws ValueError unless 0
/// <= size <= size of the dimension and step >= 1.
TANDEM_OP Tensor unfold(const Tensor& input, int64_t dimension, int64_t size, int64_t step);

/// A copy with repeats[d] copies of the tensor along dimension d; dimensions of size 1 are added at the front. Throws
/// ShapeError if there are fewer numbers than dimensions, ValueError for a negative number.
TANDEM_OP Tensor repeat(const Tensor& input, const Shape& repeats);
/// repeat; missing numbers at the front of `dims` are 1.
TANDEM_OP Tensor tile(const Tensor& input, const Shape& dims);
/// A copy with each index of dimension dim (of the flattened tensor, if missing) repeated. Throws ValueError for a
/// negative number.
TANDEM_OP Tensor repeat_interleave(const Tensor& input, int64_t repeats, std::optional<int64_t> dim = {});
/// Index i is repeated repeats[i] times. `repeats` (int32 or int64, else DTypeError) has one number for each index, or
/// one for all (ShapeError). On a GPU this synchronizes, because the shape depends on the numbers.
TANDEM_OP Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim = {});
/// A copy with the order of the indices of these dimensions reversed; strides are never negative. Throws ShapeError for
/// a repeated dimension.
TANDEM_OP Tensor flip(const Tensor& input, const Shape& dims);
/// A copy in which index i of dimension dims[k] is moved to (i + shifts[k]) modulo the size; without dims the flattened
/// tensor is rolled. Throws ValueError for lists of different lengths, IndexError for a 0-dim input with dims.
TANDEM_OP Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims = {});

}}  // namespace tandem::v0
