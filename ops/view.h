// Views, which share the memory of their input; cat and stack, which copy.
//
// A negative dimension counts from the end (IndexError outside [-ndim, ndim)). Any dtype and device. Views save
// nothing; writing to a view changes its input. Undefined inputs throw StateError. All gradients are differentiable.
#pragma once

#include <initializer_list>
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
/// Transpose of a matrix. Throws ShapeError unless input has two dimensions.
TANDEM_OP Tensor t(const Tensor& input);
/// Dimension d of the result is dimension dims[d] of the input. Throws ShapeError unless `dims` names each one once.
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
/// At most `chunks` slices of size ceil(size / chunks); the last one may be smaller. Throws ValueError unless chunks >=
/// 1, IndexError for a 0-dim input.
TANDEM_OP std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim = 0);

/// Concatenates the tensors along dimension dim: a row-major copy. dtypes promote; the other sizes (ShapeError) and the
/// devices (DeviceError) must be equal. Throws ValueError for an empty list. Saves nothing.
TANDEM_OP Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);

/// Stacks the tensors along a new dimension before dimension dim, which is in [-ndim - 1, ndim]: a row-major copy.
/// dtypes promote; shapes (ShapeError) and devices (DeviceError) must be equal. Throws ValueError for an empty list.
/// Saves nothing.
TANDEM_OP Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);

}}  // namespace tandem::v0
