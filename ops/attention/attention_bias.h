// Masks, bands and dropout as tensors that cuDNN reads. Private to ops/attention.
//
// cuDNN adds a bias to the scores. tandem's contract differs in two points: a query without keys has the result 0, not
// NaN, and a row of which all keys have a mask of, say, -1e9 is computed without loss. So the bias has no infinities,
// and each row of it is *shifted*: its largest value is subtracted, which does not change the softmax. After the
// forward pass the shifts are added to the statistics, and the results of queries without keys become 0.
//
// With dropout, cuDNN's backward pass takes a scale and its inverse, but cuDNN 9.19 ignores the inverse. The inverse
// only multiplies the products of out and its gradient, so cuDNN gets an `out` that is divided by the scale instead.
#pragma once

#include <cstdint>

#include <tandem/ops/attention/attention_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// The rows of a bias: [batches or 1, heads or 1, queries, keys].
struct BiasRows {
  int64_t batches;  ///< of the attention
  int64_t heads;    ///< of the attention, per batch
  int64_t queries;
  bool per_batch;  ///< the mask differs between batches
  bool per_head;   ///< the mask differs between heads

  int64_t count() const { return (per_batch ? batches : 1) * (per_head ? heads : 1) * queries; }
  /// The row of the bias for row `row` of [batches, heads, queries].
  TANDEM_HOST_DEVICE int64_t row_of(int64_t row) const {
    const int64_t batch = row / queries / heads, head = row / queries % heads;
    return ((per_batch ? batch * (per_head ? heads : 1) : 0) + (per_head ? head : 0)) * queries + row % queries;
  }
  /// A batch and head of the attention, batch * heads + head, to which row `row` of the bias belongs.
  TANDEM_HOST_DEVICE int64_t batch_of(int64_t row) const {
    const int64_t matrix = row / queries;
    return per_head ? matrix : matrix * heads;
  }
};

/// Writes bias[rows.count(), keys] and shifts[rows.count()], -infinity for a query without keys.
void write_attention_bias(const KernelContext& context, const AttentionCall& call, const BiasRows& rows, float* bias,
                          float* shifts);

/// After the forward pass: writes call.statistics from `log_sums`, the log(sum(exp)) of the shifted scores of
/// [batches, heads, queries], and zeros for queries without keys.
void finish_biased_attention(const KernelContext& context, const AttentionCall& call, const BiasRows& rows,
                             const float* shifts, const float* log_sums);

/// Before the backward pass: the inverse, log_sums from call.statistics. A query without keys gets 0, and so weights of
/// exp(-1e30) = 0.
void read_biased_statistics(const KernelContext& context, const AttentionCall& call, const BiasRows& rows,
                            const float* shifts, float* log_sums);

/// Writes 1 for each weight that dropout keeps and 0 for the others, of call.dtype, a half type. The size of `kept` is
/// rounded up to 16 bytes, and all of it is written.
void write_kept_weights(const KernelContext& context, const AttentionCall& call, void* kept);

/// Writes out / call.dropout.scale as a dense tensor.
void write_unscaled_out(const KernelContext& context, const AttentionCall& call, void* unscaled);

}}}  // namespace tandem::v0::cuda
