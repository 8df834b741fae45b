// The chore of reducing several runs of memory, of ranks or of devices, to one.  Private to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/reduce_op.h>

namespace tandem { inline namespace v0 { namespace chores {

/// out[i] = inputs[0][i] op inputs[1][i] op ..., from left to right, on the calling thread.  Half types are accumulated in
/// float and rounded once; kAvg divides once, after the sum; integers wrap; for bool kSum is "or" and kProduct "and"; kMin
/// and kMax pass NaN on. `out` may be one of the inputs, else nothing overlaps.  How a range is cut into calls does not
/// change the bits.
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);
/// The same, element by element also for half types, for which reduce() has vectors.
void reduce_plain(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);

}}}  // namespace tandem::v0::chores
