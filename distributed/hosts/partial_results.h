// What a host has combined travels on to the others in a type that loses nothing.  Private to distributed/.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/dtype.h>

namespace tandem::inline v0::distributed {

/// The operator that combines partial results: kSum for kAvg, which divides at the end.
ReduceOp partial_op(ReduceOp op);

/// float32 for what adds or multiplies half types, else `dtype`.
DType partial_dtype(ReduceOp op, DType dtype);

/// out[i] = in[i] as float32; `dtype` is a half type.
void widen(DType dtype, const std::byte* in, int64_t count, std::byte* out);

/// Results of `op` over `num_ranks` ranks: from elements of partial_dtype(op, dtype) to such of `dtype`, rounded once,
/// and divided before by num_ranks for kAvg.  `out` may be `in` where both have one type.
void finish_partial(ReduceOp op, DType dtype, int num_ranks, const std::byte* in, int64_t count, std::byte* out);

}  // namespace tandem::inline v0::distributed
