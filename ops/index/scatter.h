// Writes to indexed elements. Private to ops/index/.
#pragma once

#include <tandem/ops/common/common.h>
#include <tandem/ops/common/extents.h>
#include <tandem/ops/index/index_kernels.h>

namespace tandem { inline namespace v0 { namespace ops {

/// An index argument as row-major int64, not recorded. Throws DTypeError unless it is int32 or int64.
Tensor index_argument(const char* op, const char* name, const Tensor& index, OperandSpan operands);

/// Throws DTypeError or ValueError unless the first operand, `name`, can hold a number that replaces its elements.
void check_fill_value(const char* op, const char* name, OperandSpan operands, Scalar value);

/// An unrecorded row-major copy.
Tensor copy_of(const Tensor& input);

/// Writes src [like index] to elements of `out` as scatter does, in place and unrecorded. `index` is row-major int64 in
/// range; it and src share no memory with `out`.
void scatter_into(const KernelContext& context, ScatterOp op, const Tensor& out, int64_t dim, const Tensor& index,
                  const Tensor& src);
/// Writes slice i of src to slice index[i] of dimension dim of `out`; `index` has one dimension. Otherwise as
/// scatter_into.
void scatter_slices_into(const KernelContext& context, ScatterOp op, const Tensor& out, int64_t dim,
                         const Tensor& index, const Tensor& src);

/// The gradient of index_select: zeros of `shape` to which `grad` is added (recorded).
Tensor index_select_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& shape);

}}}  // namespace tandem::v0::ops
