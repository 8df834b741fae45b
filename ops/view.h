// Views, which share the memory of their input, cat and stack.
//
// Dimensions count from the end where negative (IndexError outside [-ndim, ndim)).  Any dtype and device.  Views save
// nothing; changing one changes the input.  Undefined inputs throw StateError.  All gradients can be differentiated
// again.
#pragma once

#include <initializer_list>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// `input` in another shape with as many elements; one size may be -1 and is inferred.  Throws ShapeError where the
/// number of elements differs, or where the strides do not permit it without a copy.
TANDEM_OP Tensor view(const Tensor& input, const Shape& shape);
/// The same, as a row-major copy where a view is not possible.
TANDEM_OP Tensor reshape(const Tensor& input, const Shape& shape);
/// Joins dimensions start_dim .. end_dim, both included, into one; a 0-dim tensor becomes [1].  Like reshape.
TANDEM_OP Tensor flatten(const Tensor& input, int64_t start_dim = 0, int64_t end_dim = -1);
/// Exchanges two dimensions.
TANDEM_OP Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1);
/// Transpose of a matrix.  Throws ShapeError for other than two dimensions.
TANDEM_OP Tensor t(const Tensor& input);
/// Dimension d of the result is dimension dims[d] of the input.  Throws ShapeError unless `dims` names each one once.
TANDEM_OP Tensor permute(const Tensor& input, const Shape& dims);
/// Indices begin, begin + step, ... below end of dimension dim.  begin and end count from the end where negative and
/// are clamped to the dimension.  Throws ValueError unless step >= 1.
TANDEM_OP Tensor slice(const Tensor& input, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
/// Index `index` of dimension dim, which disappears.  Throws IndexError outside [-size, size).
TANDEM_OP Tensor select(const Tensor& input, int64_t dim, int64_t index);
/// `input` repeated along dimensions of size 1, and along new ones in front, without copying: several elements share
/// memory.  -1 keeps a dimension's size.  Throws ShapeError where another size would change.
TANDEM_OP Tensor expand(const Tensor& input, const Shape& shape);
/// Without the dimensions of size 1.
TANDEM_OP Tensor squeeze(const Tensor& input);
/// Without dimension dim if its size is 1, else the same shape.
TANDEM_OP Tensor squeeze(const Tensor& input, int64_t dim);
/// With a dimension of size 1 before dimension dim; dim lies in [-ndim - 1, ndim].
TANDEM_OP Tensor unsqueeze(const Tensor& input, int64_t dim);

/// Consecutive slices of `split_size` along dimension dim; the last one is smaller where the size is no multiple.  A
/// dimension of size 0 gives one slice.  Throws ValueError unless split_size >= 1, IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> split(const Tensor& input, int64_t split_size, int64_t dim = 0);
/// Consecutive slices of those sizes.  Throws ValueError for a negative one, ShapeError unless their sum is the
/// dimension's size.
TANDEM_OP std::vector<Tensor> split(const Tensor& input, const Shape& split_sizes, int64_t dim = 0);
TANDEM_API inline std::vector<Tensor> split(const Tensor& input, std::initializer_list<int64_t> split_sizes,
                                            int64_t dim = 0) {
  return split(input, Shape(split_sizes), dim);
}
/// At most `chunks` slices of equal size, ceil(size / chunks); the last one may be smaller.  Throws ValueError unless
/// chunks >= 1, IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim = 0);

/// The tensors one after the other along dimension dim: a row-major copy.  dtypes promote; the other sizes must agree
/// (ShapeError), devices too (DeviceError).  Throws ValueError for no tensors.  Saves nothing.
TANDEM_OP Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);

/// The tensors one after the other along a new dimension before dimension dim, which lies in [-ndim - 1, ndim]: a row-major
/// copy.  dtypes promote; shapes must be equal (ShapeError), devices too (DeviceError).  Throws ValueError for no tensors.
/// Saves nothing.
TANDEM_OP Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);

}}  // namespace tandem::v0
