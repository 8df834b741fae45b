// The arguments of reductions over dimensions. Private to ops/.
#pragma once

#include <tandem/ops/common/common.h>
#include <tandem/ops/reduce/reduce_kernels.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The removed dimensions and the shape of the result.
struct Reduction {
  SmallVector<bool, 6> removed;
  Shape kept_shape;   ///< shape of the result with keepdim
  Shape shape;        ///< shape of the result
  int64_t count = 1;  ///< elements per result
};

/// The reduction over `dims`, over all dimensions if empty. Throws IndexError for a dimension that does not exist,
/// ShapeError for a repeated one.
Reduction plan_reduction(const char* op, const Tensor& input, const Shape& dims, bool keepdim);

/// Memory that kernels read as a row-major block [outer, reduce, inner].
struct BlockView {
  ReduceSizes sizes;
  Tensor memory;
};

/// The input's own memory if the removed dimensions are one contiguous block between the others, which are in the order
/// of the result; otherwise a copy with the removed dimensions last. If several dimensions are removed, their elements
/// are reduced in memory order.
BlockView arrange(const Tensor& input, const Reduction& reduction);

/// Records a reduction over `dims` (all if empty) that selects elements: the gradient is divided equally among the
/// elements that equal the result. `kept_shape` is the result's shape with keepdim.
void record_even_gradient(const char* op, const Tensor& out, const Tensor& input, const Shape& dims,
                          const Shape& kept_shape);

}}}  // namespace tandem::v0::ops
