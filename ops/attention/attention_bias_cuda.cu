#include <array>
#include <limits>

#include <tandem/base/half.h>
#include <tandem/ops/attention/attention_bias.h>
#include <tandem/ops/attention/attention_mask_cuda.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr float kNoKeys = -std::numeric_limits<float>::infinity();
constexpr float kExcluded = -1e30f;  // bias of a key without weight: finite, so that no difference of scores is NaN

/// One warp per row.
__global__ void bias_kernel(BiasRows rows, int64_t num_rows, AttentionSizes sizes, Strided<1> batches, MaskRows mask,
                            float* bias, float* shifts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = thread_index() / kWarp; row < num_rows; row += num_threads() / kWarp) {
    const int64_t t = row % sizes.queries, begin = sizes.keys_begin(t), end = sizes.keys_end(t);
    int64_t offset[1];
    batches.offsets(rows.batch_of(row), offset);
    const int64_t first = offset[0] + t * mask.query_stride;
    float shift = kNoKeys;
    for (int64_t s = begin + lane; s < end; s += kWarp) {
      shift = Larger()(shift, mask.apply(0.0f, first + s * mask.key_stride));
    }
    shift = warp_reduce(shift, Larger());
    if (lane == 0) shifts[row] = shift;
    for (int64_t s = lane; s < sizes.keys; s += kWarp) {
      float value = kExcluded;
      if (shift != kNoKeys && s >= begin && s < end) {
        const float shifted = mask.apply(0.0f, first + s * mask.key_stride) - shift;
        if (!(shifted < kExcluded)) value = shifted;  // NaN stays
      }
      bias[row * sizes.keys + s] = value;
    }
  }
}

__global__ void finish_kernel(int64_t n, BiasRows rows, AttentionSizes sizes, const float* shifts,
                              const float* log_sums, float* statistics, int num_statistics, Strided<1> batches,
                              uint16_t* out, int64_t row_stride) {
  for (int64_t row = thread_index(); row < n; row += num_threads()) {
    const float shift = shifts[rows.row_of(row)], log_sum = shift == kNoKeys ? kNoKeys : log_sums[row];
    statistics[row] = num_statistics == 1 ? shift + log_sum : shift;
    if (num_statistics == 2) statistics[n + row] = log_sum;
    if (shift == kNoKeys) {
      int64_t offset[1];
      batches.offsets(row / sizes.queries, offset);
      uint16_t* const result = out + offset[0] + row % sizes.queries * row_stride;
      for (int64_t i = 0; i < sizes.value_dim; ++i) result[i] = 0;  // of either half type
    }
  }
}

__global__ void log_sums_kernel(int64_t n, BiasRows rows, const float* shifts, const float* statistics,
                                int num_statistics, float* log_sums) {
  for (int64_t row = thread_index(); row < n; row += num_threads()) {
    const float shift = shifts[rows.row_of(row)], rest = num_statistics == 2 ? statistics[n + row] : 0.0f;
    log_sums[row] = shift == kNoKeys ? 0.0f : statistics[row] - shift + rest;
  }
}

/// Eight weights, stored by one instruction.
struct alignas(16) EightWeights {
  uint16_t at[8];
};

__global__ void kept_weights_kernel(int64_t n, PhiloxState state, uint64_t threshold, uint16_t one,
                                    EightWeights* kept) {
  for (int64_t i = thread_index(); i < n; i += num_threads()) {
    EightWeights eight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::array<uint32_t, 4> words = state.block(static_cast<uint64_t>(2 * i + half));
#pragma unroll
      for (int k = 0; k < 4; ++k) eight.at[4 * half + k] = words[k] >= threshold ? one : uint16_t{0};
    }
    kept[i] = eight;
  }
}

template <class T>
__global__ void unscale_kernel(int64_t rows, int64_t queries, int64_t columns, Strided<1> batches, const T* out,
                               int64_t row_stride, float inverse, T* unscaled) {
  for (int64_t i = thread_index(); i < rows * columns; i += num_threads()) {
    const int64_t row = i / columns;
    int64_t offset[1];
    batches.offsets(row / queries, offset);
    const T value = out[offset[0] + row % queries * row_stride + i % columns];
    unscaled[i] = T(static_cast<float>(value) * inverse);
  }
}

}  // namespace

void write_attention_bias(const KernelContext& context, const AttentionCall& call, const BiasRows& rows, float* bias,
                          float* shifts) {
  const int64_t num_rows = rows.count();
  launch_kernel(context, bias_kernel, blocks_for(num_rows, kBlock / kWarp), kBlock, 0, rows, num_rows, call.sizes,
                Strided<1>(call.batch_shape, {batch_strides(mask_or(call.mask, call.query))}), mask_rows(call.mask),
                bias, shifts);
}

void finish_biased_attention(const KernelContext& context, const AttentionCall& call, const BiasRows& rows,
                             const float* shifts, const float* log_sums) {
  launch_for_each(context, call.sizes.batches * call.sizes.queries, finish_kernel, rows, call.sizes, shifts, log_sums,
                  static_cast<float*>(call.statistics), statistics_of(context, call),
                  Strided<1>(call.batch_shape, {batch_strides(call.out)}), static_cast<uint16_t*>(call.out.data),
                  call.out.strides[call.out.strides.size() - 2]);
}

void read_biased_statistics(const KernelContext& context, const AttentionCall& call, const BiasRows& rows,
                            const float* shifts, float* log_sums) {
  launch_for_each(context, call.sizes.batches * call.sizes.queries, log_sums_kernel, rows, shifts,
                  static_cast<const float*>(call.statistics), statistics_of(context, call), log_sums);
}

void write_kept_weights(const KernelContext& context, const AttentionCall& call, void* kept) {
  const AttentionSizes& sizes = call.sizes;
  const uint16_t one = call.dtype == kBFloat16 ? BFloat16(1.0f).bits : Half(1.0f).bits;
  launch_for_each(context, ceil_div<int64_t>(sizes.batches * sizes.queries * sizes.keys, 8), kept_weights_kernel,
                  call.dropout.state, call.dropout.threshold, one, static_cast<EightWeights*>(kept));
}

void write_unscaled_out(const KernelContext& context, const AttentionCall& call, void* unscaled) {
  const AttentionSizes& sizes = call.sizes;
  const int64_t rows = sizes.batches * sizes.queries;
  const auto write = [&]<class T>() {
    launch_kernel(context, unscale_kernel<T>, blocks_for(rows * sizes.value_dim), kBlock, 0, rows, sizes.queries,
                  sizes.value_dim, Strided<1>(call.batch_shape, {batch_strides(call.out)}),
                  static_cast<const T*>(call.out.data), call.out.strides[call.out.strides.size() - 2],
                  static_cast<float>(1 / call.dropout.scale), static_cast<T*>(unscaled));
  };
  call.dtype == kBFloat16 ? write.operator()<BFloat16>() : write.operator()<Half>();
}

}}}  // namespace tandem::v0::cuda
