// Elementwise reduction over the ranks' data.  Private to distributed/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/dtype.h>

namespace tandem::inline v0::distributed {

/// out[i] = inputs[0][i] op inputs[1][i] op ..., from left to right.  Half types are accumulated in float and rounded
/// once; kAvg divides once, after the sum; integers wrap; for bool kSum is "or" and kProduct "and"; kMin and kMax pass
/// NaN on. `out` may be one of the inputs, else nothing overlaps.  How a range is cut into calls does not change the
/// bits.
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);
/// The same, element by element also for half types, for which reduce() has vectors.
void reduce_plain(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);

}  // namespace tandem::inline v0::distributed
