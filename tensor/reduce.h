// Elementwise reduction of several buffers, of ranks or devices, into one. Private to the library.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/reduce_op.h>

namespace tandem { inline namespace v0 { namespace primitives {

/// out[i] = inputs[0][i] op inputs[1][i] op ..., in the order of tree_split (sum_order.h), on the calling thread. Half
/// types are accumulated in float and rounded once; kAvg divides once, after the sum; integers wrap around; for bool
/// kSum is "or" and kProduct "and"; kMin and kMax propagate NaN. `out` may be one of the inputs; otherwise buffers do
/// not overlap. The bits do not depend on how a range is divided into calls.
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);
/// reduce() without SIMD for half types; gives the same bits.
void reduce_plain(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out);

/// The mean of n terms with that sum. For a power of two, multiplication by the inverse is exact and faster.
template <class T>
T mean_of(T sum, size_t n) {
  return std::has_single_bit(n) ? sum * (T(1) / static_cast<T>(n)) : sum / static_cast<T>(n);
}

}}}  // namespace tandem::v0::primitives
