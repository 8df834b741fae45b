// GPU kernels of attention for float32 and float64, and for what cuDNN does not compute (cudnn_attention.h).
//
// A *tile* is 64 queries by 64 keys. A block owns the rows of one side and loops over the tiles of the other: forward
// and the gradient of queries own queries, the gradients of keys and values own keys. So each result is written by one
// block, in an order that depends only on sizes; the cost is that each of the three kernels computes the scores.
//
// Results wider than a block's registers are divided into groups of columns, one block each.
#include <algorithm>
#include <array>

#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/ops/attention/attention_mask_cuda.h>
#include <tandem/ops/attention/attention_tiles_cuda.h>
#include <tandem/ops/attention/cudnn_attention.h>
#include <tandem/ops/softmax/row_math_cuda.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using namespace attention_tiles;

/// The score of query t and key s of one batch from their dot product; -infinity if t does not attend to s.
template <class C>
struct Scores {
  int64_t queries, keys, band_begin, band_end;
  C scale;
  MaskRows mask;
  int64_t mask_offset;

  __device__ C operator()(C product, int64_t t, int64_t s) const {
    if (t >= queries || s >= keys || s < t + band_begin || s >= t + band_end) return kNoScore<C>;
    const C score = scale * product;
    return mask.apply(score, mask_offset + t * mask.query_stride + s * mask.key_stride);
  }
};

template <class C>
__device__ Scores<C> scores_of(const AttentionSizes& sizes, const MaskRows& mask, int64_t mask_offset) {
  return {sizes.queries, sizes.keys, sizes.band_begin, sizes.band_end, static_cast<C>(sizes.scale), mask, mask_offset};
}

/// The first row of the tile that contains row `i`.
__device__ inline int64_t tile_of(int64_t i) { return i / kTile * kTile; }

/// The factors of dropout, 0 or `scale`, of consecutive weights.
template <class C>
struct DropoutFactors {
  PhiloxState state;
  uint64_t threshold;
  C scale;

  explicit DropoutFactors(const AttentionDropout& dropout)
      : state(dropout.state), threshold(dropout.threshold), scale(static_cast<C>(dropout.scale)) {}

  /// factors[i] = the factor of weight `number` + i.
  __device__ void operator()(int64_t number, C (&factors)[kOwn]) const {
    const uint64_t skipped = static_cast<uint64_t>(number) % 4, block = static_cast<uint64_t>(number) / 4;
    const std::array<uint32_t, 4> one = state.block(block), next = state.block(block + (skipped != 0 ? 1 : 0));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      uint32_t word = one[i];  // selected without an index, which would put the words into local memory
#pragma unroll
      for (int skip = 1; skip < kOwn; ++skip) {
        if (skipped == static_cast<uint64_t>(skip)) word = i + skip < kOwn ? one[(i + skip) % 4] : next[(i + skip) % 4];
      }
      factors[i] = word >= threshold ? scale : C{0};
    }
  }
};

/// Reduces by f over the 16 threads of the same y; all of them get the result.
template <class C, class F>
__device__ C row_reduce(C value, F f) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = f(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// The task of a block: a batch, a tile of rows of the side it owns, and a group of columns.
struct Task {
  int64_t batch;
  int64_t begin;  // first row
  int64_t first_column;

  /// `longest_first`: the last tile of a batch, which has the most keys under a causal mask, runs first.
  __device__ Task(int64_t task, int64_t tiles, int64_t groups, int64_t group_columns, bool longest_first) {
    batch = task / groups / tiles;
    const int64_t tile = task / groups % tiles;
    begin = (longest_first ? tiles - 1 - tile : tile) * kTile;
    first_column = task % groups * group_columns;
  }
};

/// Number of tasks: tiles of `rows` times groups of columns.
struct Split {
  int64_t tiles;
  int64_t groups;
  int64_t tasks;

  Split(int64_t batches, int64_t rows, int64_t columns, int64_t group_columns)
      : tiles((rows + kTile - 1) / kTile),
        groups(std::max<int64_t>(1, (columns + group_columns - 1) / group_columns)),
        tasks(batches * tiles * groups) {}
};

// Indices of operands in the kernels' Strided argument.
enum { kQuery, kKey, kValue, kMask, kOut, kForwardOperands };

template <class T, int kChunks, bool kHasDropout>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(Split split, AttentionSizes sizes, Strided<kForwardOperands> batches, Rows<const T> query,
                     Rows<const T> key, Rows<const T> value, MaskRows mask, Rows<T> out, Accumulator<T>* statistics,
                     int num_statistics, DropoutFactors<Accumulator<T>> dropout) {
  using C = Accumulator<T>;
  __shared__ SharedTiles<C> tiles;
  for (int64_t index = blockIdx.x; index < split.tasks; index += gridDim.x) {
    const Task task(index, split.tiles, split.groups, kChunks * kTile, /*longest_first=*/sizes.band_end < sizes.keys);
    int64_t offsets[kForwardOperands];
    batches.offsets(task.batch, offsets);
    const Scores<C> score = scores_of<C>(sizes, mask, offsets[kMask]);
    const Rows<const T> keys = key.at(offsets[kKey]);
    const Rows<const T> values = value.at(offsets[kValue]);
    const Rows<const T> own = query.at(offsets[kQuery]).from(task.begin);
    const int x = thread_x(), y = thread_y();
    const int64_t t = task.begin + y * kOwn, columns = sizes.value_dim - task.first_column;

    C max[kOwn], sum[kOwn] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) max[i] = kNoScore<C>;
    Results<C, kChunks> results;
    const int64_t keys_needed = sizes.keys_end(task.begin + kTile - 1);
    for (int64_t begin = tile_of(sizes.keys_begin(task.begin)); begin < keys_needed; begin += kTile) {
      C weights[kOwn][kOwn];
      multiply_rows<const T, C>(own, keys.from(begin), sizes.head_dim, tiles, weights);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        C largest = max[i];
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          weights[i][j] = score(weights[i][j], t + i, begin + x * kOwn + j);
          largest = Larger()(largest, weights[i][j]);
        }
        largest = row_reduce(largest, Larger());
        const bool is_empty = largest == kNoScore<C>;
        C total = 0;
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          weights[i][j] = is_empty ? C{0} : exp_of_nonpositive(weights[i][j] - largest);
          total += weights[i][j];
        }
        total = row_reduce(total, Plus());
        if (max[i] != largest) {
          const C factor = sum[i] == C{0} ? C{0} : exp_of_nonpositive(max[i] - largest);
          sum[i] *= factor;
#pragma unroll
          for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
            for (int j = 0; j < kOwn; ++j) results.sums[chunk][i][j] *= factor;
          }
        }
        max[i] = largest;
        sum[i] += total;
        if constexpr (kHasDropout) {
          C factors[kOwn];
          dropout((task.batch * sizes.queries + t + i) * sizes.keys + begin + x * kOwn, factors);
#pragma unroll
          for (int j = 0; j < kOwn; ++j) weights[i][j] *= factors[j];
        }
      }
      store_transposed(weights, tiles);
      results.add(values.from(begin).columns_from(task.first_column), columns, tiles);
    }

    C factors[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool is_empty = sum[i] == C{0};
      factors[i] = is_empty ? C{0} : C{1} / sum[i];
      if (x == 0 && task.first_column == 0 && t + i < sizes.queries) {
        const int64_t row = task.batch * sizes.queries + t + i;
        const C log_sum = is_empty ? kNoScore<C> : log_of(sum[i]);
        statistics[row] = num_statistics == 1 ? max[i] + log_sum : max[i];
        if (num_statistics == 2) statistics[sizes.batches * sizes.queries + row] = log_sum;
      }
    }
    results.write(out.at(offsets[kOut]).from(task.begin).columns_from(task.first_column), columns, factors);
  }
}

/// products[row] = the dot product of a row of the result and its gradient, which the backward of softmax subtracts.
/// One warp per row.
template <class T>
__global__ void row_dots_kernel(AttentionSizes sizes, Strided<2> batches, Rows<const T> out, Rows<const T> grad,
                                Accumulator<T>* products) {
  using C = Accumulator<T>;
  const int64_t num_rows = sizes.batches * sizes.queries;
  for (int64_t row = thread_index() / kWarp; row < num_rows; row += num_threads() / kWarp) {
    int64_t offsets[2];
    batches.offsets(row / sizes.queries, offsets);
    const T* const y = out.data + offsets[0] + row % sizes.queries * out.stride;
    const T* const g = grad.data + offsets[1] + row % sizes.queries * grad.stride;
    C sum = 0;
    for (int64_t i = threadIdx.x % kWarp; i < sizes.value_dim; i += kWarp)
      sum += static_cast<C>(y[i]) * static_cast<C>(g[i]);
    sum = warp_reduce(sum, Plus());
    if (threadIdx.x % kWarp == 0) products[row] = sum;
  }
}

/// Numbers of a query for converting scores to weights, and gradients of weights to gradients of scores.
template <class C>
struct QueryNumbers {
  C max = 0;
  C log_sum = 0;
  C product = 0;

  QueryNumbers() = default;
  /// The numbers of query t of a batch. Queries from sizes.queries on have no scores, so any numbers are valid for
  /// them.
  __device__ QueryNumbers(const AttentionSizes& sizes, int64_t batch, int64_t t, const C* statistics,
                          int num_statistics, const C* products) {
    if (t >= sizes.queries) return;
    const int64_t row = batch * sizes.queries + t;
    max = statistics[row];
    if (num_statistics == 2) log_sum = statistics[sizes.batches * sizes.queries + row];
    product = products[row];
    if (max == kNoScore<C>) {  // a query without keys: all its weights become 0
      max = -kNoScore<C>;
      log_sum = 0;
    }
  }

  __device__ C weight(C score) const { return exp_of_nonpositive(score - max - log_sum); }
};

enum { kGrad = kMask + 1, kFirstResult, kSecondResult, kBackwardOperands };

/// The inputs of both backward kernels.
template <class T>
struct BackwardInputs {
  AttentionSizes sizes;
  Strided<kBackwardOperands> batches;
  Rows<const T> query, key, value, grad;
  MaskRows mask;
  const Accumulator<T>* statistics;
  int num_statistics;
  const Accumulator<T>* products;
  DropoutFactors<Accumulator<T>> dropout;
};

template <class T, int kChunks, bool kHasDropout>
__global__ void __launch_bounds__(kThreads)
    attention_query_gradient_kernel(Split split, BackwardInputs<T> in, Rows<T> out) {
  using C = Accumulator<T>;
  __shared__ SharedTiles<C> tiles;
  const AttentionSizes& sizes = in.sizes;
  for (int64_t index = blockIdx.x; index < split.tasks; index += gridDim.x) {
    const Task task(index, split.tiles, split.groups, kChunks * kTile, /*longest_first=*/sizes.band_end < sizes.keys);
    int64_t offsets[kBackwardOperands];
    in.batches.offsets(task.batch, offsets);
    const Scores<C> score = scores_of<C>(sizes, in.mask, offsets[kMask]);
    const Rows<const T> keys = in.key.at(offsets[kKey]);
    const Rows<const T> values = in.value.at(offsets[kValue]);
    const Rows<const T> own = in.query.at(offsets[kQuery]).from(task.begin);
    const Rows<const T> own_grad = in.grad.at(offsets[kGrad]).from(task.begin);
    const int x = thread_x(), y = thread_y();
    const int64_t t = task.begin + y * kOwn, columns = sizes.head_dim - task.first_column;

    QueryNumbers<C> numbers[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      numbers[i] = {sizes, task.batch, t + i, in.statistics, in.num_statistics, in.products};
    Results<C, kChunks> results;
    const int64_t keys_needed = sizes.keys_end(task.begin + kTile - 1);
    for (int64_t begin = tile_of(sizes.keys_begin(task.begin)); begin < keys_needed; begin += kTile) {
      C weights[kOwn][kOwn], errors[kOwn][kOwn];
      multiply_rows<const T, C>(own, keys.from(begin), sizes.head_dim, tiles, weights);
      multiply_rows<const T, C>(own_grad, values.from(begin), sizes.value_dim, tiles, errors);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if constexpr (kHasDropout) {
          C factors[kOwn];
          in.dropout((task.batch * sizes.queries + t + i) * sizes.keys + begin + x * kOwn, factors);
#pragma unroll
          for (int j = 0; j < kOwn; ++j) errors[i][j] *= factors[j];
        }
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const C weight = numbers[i].weight(score(weights[i][j], t + i, begin + x * kOwn + j));
          errors[i][j] = weight * (errors[i][j] - numbers[i].product);
        }
      }
      store_transposed(errors, tiles);
      results.add(keys.from(begin).columns_from(task.first_column), columns, tiles);
    }
    C factors[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) factors[i] = score.scale;
    results.write(out.at(offsets[kFirstResult]).from(task.begin).columns_from(task.first_column), columns, factors);
  }
}

template <class T, int kChunks, bool kHasDropout>
__global__ void __launch_bounds__(kThreads)
    attention_key_gradient_kernel(Split split, BackwardInputs<T> in, Rows<T> key_out, Rows<T> value_out) {
  using C = Accumulator<T>;
  __shared__ SharedTiles<C> tiles;
  const AttentionSizes& sizes = in.sizes;
  for (int64_t index = blockIdx.x; index < split.tasks; index += gridDim.x) {
    const Task task(index, split.tiles, split.groups, kChunks * kTile, /*longest_first=*/false);
    const int x = thread_x(), y = thread_y();
    const int64_t s = task.begin + y * kOwn;
    const int64_t key_columns = sizes.head_dim - task.first_column, value_columns = sizes.value_dim - task.first_column;

    int64_t offsets[kBackwardOperands];
    Results<C, kChunks> key_results, value_results;
    const int64_t queries_needed = sizes.queries_end(task.begin + kTile - 1);
    for (int64_t batch = task.batch * sizes.group; batch < (task.batch + 1) * sizes.group; ++batch) {
      in.batches.offsets(batch, offsets);
      const Scores<C> score = scores_of<C>(sizes, in.mask, offsets[kMask]);
      const Rows<const T> queries = in.query.at(offsets[kQuery]);
      const Rows<const T> grads = in.grad.at(offsets[kGrad]);
      const Rows<const T> own = in.key.at(offsets[kKey]).from(task.begin);
      const Rows<const T> own_values = in.value.at(offsets[kValue]).from(task.begin);
      for (int64_t begin = tile_of(sizes.queries_begin(task.begin)); begin < queries_needed; begin += kTile) {
        C weights[kOwn][kOwn], errors[kOwn][kOwn];
        multiply_rows<const T, C>(own, queries.from(begin), sizes.head_dim, tiles, weights);
        multiply_rows<const T, C>(own_values, grads.from(begin), sizes.value_dim, tiles, errors);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const int64_t t = begin + x * kOwn + j;
          const QueryNumbers<C> numbers(sizes, batch, t, in.statistics, in.num_statistics, in.products);
          C factors[kOwn];
          if constexpr (kHasDropout) in.dropout((batch * sizes.queries + t) * sizes.keys + s, factors);
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
            weights[i][j] = numbers.weight(score(weights[i][j], t, s + i));
            if constexpr (kHasDropout) errors[i][j] *= factors[i];
            errors[i][j] = weights[i][j] * (errors[i][j] - numbers.product);
            if constexpr (kHasDropout) weights[i][j] *= factors[i];
          }
        }
        store_transposed(weights, tiles);
        value_results.add(grads.from(begin).columns_from(task.first_column), value_columns, tiles);
        store_transposed(errors, tiles);
        key_results.add(queries.from(begin).columns_from(task.first_column), key_columns, tiles);
      }
    }
    C factors[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) factors[i] = static_cast<C>(sizes.scale);
    key_results.write(key_out.at(offsets[kFirstResult]).from(task.begin).columns_from(task.first_column), key_columns,
                      factors);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) factors[i] = C{1};
    value_results.write(value_out.at(offsets[kSecondResult]).from(task.begin).columns_from(task.first_column),
                        value_columns, factors);
  }
}

template <class T>
Rows<T> rows_of(const AttentionTensor& tensor, int64_t count) {
  return {static_cast<T*>(tensor.data), tensor.strides[tensor.strides.size() - 2], count};
}

/// Calls f.operator()<T, kChunks, kHasDropout>() with the number of chunks for results of `columns` columns; always one
/// with dropout, so that there are fewer kernels.
template <class F>
void visit(const AttentionCall& call, int64_t columns, const F& f) {
  visit_floating_dtype(call.dtype, [&]<class T>() {
    if (call.dropout.threshold != 0) {
      f.template operator()<T, 1, true>();
    } else if (columns <= kTile) {
      f.template operator()<T, 1, false>();
    } else {
      f.template operator()<T, 2, false>();
    }
  });
}

}  // namespace

int64_t attention_workspace_bytes(const KernelContext& context, const AttentionCall& call) {
  return cudnn_attention_workspace_bytes(context, call, nullptr);
}

void attention(const KernelContext& context, const AttentionCall& call, void* workspace) {
  const AttentionSizes& sizes = call.sizes;
  if (sizes.batches * sizes.queries == 0 || cudnn_attention(context, call, nullptr, workspace)) return;
  const Strided<kForwardOperands> batches(
      call.batch_shape, {batch_strides(call.query), batch_strides(call.key), batch_strides(call.value),
                         batch_strides(mask_or(call.mask, call.query)), batch_strides(call.out)});
  visit(call, sizes.value_dim, [&]<class T, int kChunks, bool kHasDropout>() {
    const Split split(sizes.batches, sizes.queries, sizes.value_dim, kChunks * kTile);
    launch_kernel(context, attention_kernel<T, kChunks, kHasDropout>, blocks_for(split.tasks, 1), kThreads, 0, split,
                  sizes, batches, rows_of<const T>(call.query, sizes.queries), rows_of<const T>(call.key, sizes.keys),
                  rows_of<const T>(call.value, sizes.keys), mask_rows(call.mask), rows_of<T>(call.out, sizes.queries),
                  static_cast<Accumulator<T>*>(call.statistics), statistics_of(context, call),
                  DropoutFactors<Accumulator<T>>(call.dropout));
  });
}

int64_t attention_backward_workspace_bytes(const KernelContext& context, const AttentionCall& call,
                                           const AttentionGradients& grads) {
  const int64_t products = call.sizes.batches * call.sizes.queries * (call.dtype == kFloat64 ? 8 : 4);
  return std::max(products, cudnn_attention_workspace_bytes(context, call, &grads));
}

void attention_backward(const KernelContext& context, const AttentionCall& call, const AttentionGradients& grads,
                        void* workspace) {
  const AttentionSizes& sizes = call.sizes;
  if (sizes.batches == 0 || cudnn_attention(context, call, &grads, workspace)) return;
  const auto batches = [&](const AttentionTensor& first, const AttentionTensor& second) {
    return Strided<kBackwardOperands>(call.batch_shape,
                                      {batch_strides(call.query), batch_strides(call.key), batch_strides(call.value),
                                       batch_strides(mask_or(call.mask, call.query)), batch_strides(grads.out),
                                       batch_strides(first), batch_strides(second)});
  };
  visit_floating_dtype(call.dtype, [&]<class T>() {
    launch_kernel(context, row_dots_kernel<T>, blocks_for(sizes.batches * sizes.queries, kBlock / kWarp), kBlock, 0,
                  sizes, Strided<2>(call.batch_shape, {batch_strides(call.out), batch_strides(grads.out)}),
                  rows_of<const T>(call.out, sizes.queries), rows_of<const T>(grads.out, sizes.queries),
                  static_cast<Accumulator<T>*>(workspace));
  });
  const auto inputs = [&]<class T>(const AttentionTensor& first, const AttentionTensor& second) {
    return BackwardInputs<T>{sizes,
                             batches(first, second),
                             rows_of<const T>(call.query, sizes.queries),
                             rows_of<const T>(call.key, sizes.keys),
                             rows_of<const T>(call.value, sizes.keys),
                             rows_of<const T>(grads.out, sizes.queries),
                             mask_rows(call.mask),
                             static_cast<const Accumulator<T>*>(call.statistics),
                             statistics_of(context, call),
                             static_cast<const Accumulator<T>*>(workspace),
                             DropoutFactors<Accumulator<T>>(call.dropout)};
  };
  visit(call, sizes.head_dim, [&]<class T, int kChunks, bool kHasDropout>() {
    const Split split(sizes.batches, sizes.queries, sizes.head_dim, kChunks * kTile);
    launch_kernel(context, attention_query_gradient_kernel<T, kChunks, kHasDropout>, blocks_for(split.tasks, 1),
                  kThreads, 0, split, inputs.template operator()<T>(grads.query, grads.query),
                  rows_of<T>(grads.query, sizes.queries));
  });
  const int64_t widest = std::max(sizes.head_dim, sizes.value_dim);
  visit(call, widest, [&]<class T, int kChunks, bool kHasDropout>() {
    const Split split(sizes.batches / sizes.group, sizes.keys, widest, kChunks * kTile);
    launch_kernel(context, attention_key_gradient_kernel<T, kChunks, kHasDropout>, blocks_for(split.tasks, 1), kThreads,
                  0, split, inputs.template operator()<T>(grads.key, grads.value), rows_of<T>(grads.key, sizes.keys),
                  rows_of<T>(grads.value, sizes.keys));
  });
}

}}}  // namespace tandem::v0::cuda
