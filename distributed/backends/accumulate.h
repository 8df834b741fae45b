// What a host has combined travels on to the others in a type that loses nothing. Private to distributed/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/reduce_op.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The operator that combines partial results: kSum for kAvg, which divides at the end.
ReduceOp partial_op(ReduceOp op);

/// float32 for what adds or multiplies half types, else `dtype`.
DType partial_dtype(ReduceOp op, DType dtype);

/// out[i] = in[i] as float32; `dtype` is a half type.
void widen(DType dtype, const std::byte* in, int64_t count, std::byte* out);

/// Results of `op` over `num_ranks` ranks: from elements of partial_dtype(op, dtype) to such of `dtype`, rounded once,
/// and divided before by num_ranks for kAvg. `out` may be `in` where both have one type.
void finish_partial(ReduceOp op, DType dtype, int num_ranks, const std::byte* in, int64_t count, std::byte* out);

/// What an all_reduce in phases leaves, at once: each host's ranks in ascending order, then the hosts in theirs, half
/// types in float32 until the end. `inputs` by rank, of `count` elements each; `out` may be one of them. `scratch` is
/// kept by the caller for the next call.
void reduce_by_hosts(const HostLayout& layout, ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                     int64_t count, std::vector<std::byte>& scratch, std::byte* out);

}}}  // namespace tandem::v0::distributed
