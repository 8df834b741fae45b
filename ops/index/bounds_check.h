// Checks of indices against their range. Private to ops/.
#pragma once

#include <optional>

#include <tandem/ops/common/common.h>

namespace tandem { inline namespace v0 { namespace ops {

/// Throws IndexError, "<op>: <what> 7 at position [1, 0] is outside [0, 5)", for the first element of `index` (int64,
/// row-major) that is neither in [0, size) nor `ignored`. On a GPU the next synchronization throws (tensor/cuda.h), and
/// kernels use index 0 instead.
void check_index_bounds(const char* op, const char* what, const KernelContext& context, const Tensor& index,
                        int64_t size, std::optional<int64_t> ignored = {});

/// `index` (int64, row-major) with negative elements counted from the end: a new tensor. Throws like
/// check_index_bounds for elements outside [-size, size); on a GPU they become 0.
Tensor wrap_index(const char* op, const char* what, const KernelContext& context, const Tensor& index, int64_t size);

}}}  // namespace tandem::v0::ops
