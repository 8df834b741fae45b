// Partial sums are exchanged between hosts in the accumulation dtype (float32 for half types), so that results are
// rounded once. Private to distributed/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/reduce_op.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The operator that combines partial results. For kAvg it is kSum; the division follows at the end.
ReduceOp partial_op(ReduceOp op);

/// float32 if `op` adds or multiplies and `dtype` is a half type; else `dtype`.
DType partial_dtype(ReduceOp op, DType dtype);

/// out[i] = in[i] as float32; `dtype` is a half type.
void widen(DType dtype, const std::byte* in, int64_t count, std::byte* out);

/// Converts results of `op` over `num_ranks` ranks from partial_dtype(op, dtype) to `dtype`. For kAvg it first divides
/// by num_ranks. Rounds once. `out` may be `in` if both have the same dtype.
void finish_partial(ReduceOp op, DType dtype, int num_ranks, const std::byte* in, int64_t count, std::byte* out);

/// Computes the result of a hierarchical all_reduce in one step: reduce() of the ranks of each host, then of the hosts.
/// Half types are accumulated in float32. `inputs` has one entry per rank, with `count` elements each; `out` may be one
/// of them. The caller keeps `scratch` for the next call.
void reduce_by_hosts(const HostLayout& layout, ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                     int64_t count, std::vector<std::byte>& scratch, std::byte* out);

}}}  // namespace tandem::v0::distributed
