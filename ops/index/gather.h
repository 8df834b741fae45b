// Recording of operations that select elements by index. Private to ops/.
#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// Records that `out` has the values of gather(input, dim, index), possibly without dimension `dim` of size 1. `index`
/// is row-major; it is saved.
void record_gather(const char* op, const Tensor& out, const Tensor& input, int64_t dim, const Tensor& index);

/// The gradient of gather as an operation: adds each element of grad at the position it was gathered from, in ascending
/// order; all other elements are 0. `index` is row-major and in range.
Tensor gather_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& input_shape);

}}}  // namespace tandem::v0::ops
