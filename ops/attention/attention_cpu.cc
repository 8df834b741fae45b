// CPU kernels of attention.
//
// Queries are processed in blocks of 64, keys in blocks of at most 256. Forward computes the scores of a block as rows
// of queries. Backward computes them transposed, as rows of keys by 64 columns of queries, so that all matrix products
// except one read their operands without a copy. If queries attend to a band of keys only, tiles outside of the band
// are skipped, and tiles on its ends are shortened.
#include <algorithm>
#include <cmath>
#include <limits>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/matmul/gemm_blocks.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/ops/random/philox_blocks.h>
#include <tandem/ops/softmax/row_math.h>

namespace tandem { inline namespace v0 {
namespace {

constexpr int64_t kQueryBlock = 64, kKeyBlock = 256;
/// Multiple of the width of all SIMD vectors. Rows of scores are padded to a multiple of it, so that vector loops have
/// no remainder.
constexpr int64_t kLanes = 16;
/// Number of pieces of parallel work, each with its own scratch memory.
constexpr int64_t kPieces = 16;

template <class T>
const TileKernels<T>& kernels_of(const AttentionCall& call) {
  if constexpr (std::is_same_v<T, float>) {
    if (call.algorithm == AttentionAlgorithm::kAvx512) return kGemmAvx512;
    if (call.algorithm == AttentionAlgorithm::kAvx2) return kGemmAvx2;
  }
  return kPlainTiles<T>;
}

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

/// Layout of the scratch memory of a piece, in elements.
struct Scratch {
  int64_t used = 0;
  int64_t take(int64_t elements) {
    const int64_t at = used;
    used += round_up(elements, 16);
    return at;
  }
};

/// The factors of dropout of one batch: 0 for a dropped weight, else `scale`.
template <class T>
struct DropoutRows {
  PhiloxState state;
  uint64_t threshold;  ///< 0: no dropout
  T scale;
  int64_t keys;
  int64_t first = 0;  ///< number of the batch's first weight

  explicit DropoutRows(const AttentionCall& call, int64_t batch = 0)
      : state(call.dropout.state),
        threshold(call.dropout.threshold),
        scale(static_cast<T>(call.dropout.scale)),
        keys(call.sizes.keys),
        first(batch * call.sizes.queries * call.sizes.keys) {}

  /// Elements of scratch memory for the factors of `count` keys; 0 without dropout.
  int64_t size(int64_t count) const { return threshold == 0 ? 0 : count; }

  /// out[i * step] = the factor of query t and key `begin` + i, for i < n.
  void factors(int64_t t, int64_t begin, int64_t n, T* out, int64_t step) const {
    const int64_t number = first + t * keys + begin;
    uint32_t words[4 * kPhiloxBlocks];
    for (int64_t i = 0, skipped = number % 4; i < n; skipped = 0) {
      philox_blocks(state, static_cast<uint64_t>((number + i) / 4), words);
      const int64_t count = std::min<int64_t>(n - i, 4 * kPhiloxBlocks - skipped);
      for (int64_t w = 0; w < count; ++w) out[(i + w) * step] = words[skipped + w] >= threshold ? scale : T(0);
      i += count;
    }
  }
};

/// Partition of the forward pass: tasks are (batch, group of query blocks).
template <class T>
struct ForwardPlan {
  const TileKernels<T>& kernels;
  int64_t key_block, groups, blocks_per_group;
  Scratch scratch;
  int64_t keys, values, scores, max, sum, factors;

  explicit ForwardPlan(const AttentionCall& call) : kernels(kernels_of<T>(call)) {
    const AttentionSizes& sizes = call.sizes;
    key_block = std::clamp<int64_t>(round_up(sizes.keys, 64), 64, kKeyBlock);
    const int64_t blocks = std::max<int64_t>(1, (sizes.queries + kQueryBlock - 1) / kQueryBlock);
    // Each group packs the keys again, so several groups are used only if batches alone would leave threads idle.
    const int64_t wanted = std::clamp<int64_t>(kPieces / std::max<int64_t>(1, sizes.batches), 1, blocks);
    blocks_per_group = (blocks + wanted - 1) / wanted;
    groups = (blocks + blocks_per_group - 1) / blocks_per_group;
    keys = scratch.take(sizes.head_dim * key_block);
    values = scratch.take(round_up(sizes.value_dim, kernels.columns) * key_block);
    scores = scratch.take(kQueryBlock * key_block);
    max = scratch.take(blocks_per_group * kQueryBlock);
    sum = scratch.take(blocks_per_group * kQueryBlock);
    factors = scratch.take(DropoutRows<T>(call).size(key_block));
  }
  int64_t tasks(const AttentionSizes& sizes) const { return sizes.batches * groups; }
};

int64_t task_grain(int64_t tasks) { return std::max<int64_t>(1, (tasks + kPieces - 1) / kPieces); }

int64_t pieces_of(int64_t tasks) { return (tasks + task_grain(tasks) - 1) / task_grain(tasks); }

template <class T>
void pack_columns(const TileKernels<T>& kernels, const T* source, int64_t k, int64_t columns, int64_t k_stride,
                  int64_t column_stride, T* packed) {
  for (int64_t j = 0; j < columns; j += kernels.columns) {
    kernels.pack_right(source + j * column_stride, k, std::min<int64_t>(kernels.columns, columns - j), k_stride,
                       column_stride, packed + j * k);
  }
}

/// `rows` as the right side of a product of that depth: used directly if no vector reads beyond their end, else packed.
template <class T>
RightSide<T> right_rows(const TileKernels<T>& kernels, const T* source, int64_t depth, int64_t columns, int64_t stride,
                        T* packed) {
  if (columns % kLanes == 0) return {source, stride, kernels.columns};
  pack_columns(kernels, source, depth, columns, stride, 1, packed);
  return {packed, kernels.columns, depth * kernels.columns};
}

/// The element at which batch number `batch` of a tensor begins.
int64_t batch_offset(const AttentionCall& call, const AttentionTensor& tensor, int64_t batch) {
  int64_t offset = 0;
  for (size_t d = call.batch_shape.size(); d-- > 0;) {
    offset += batch % call.batch_shape[d] * tensor.strides[d];
    batch /= call.batch_shape[d];
  }
  return offset;
}

/// A matrix of one batch.
template <class T>
struct Rows {
  T* data;
  int64_t stride;

  Rows(const AttentionCall& call, const AttentionTensor& tensor, int64_t batch)
      : data(static_cast<T*>(tensor.data) + batch_offset(call, tensor, batch)),
        stride(tensor.strides[tensor.strides.size() - 2]) {}
  T* operator[](int64_t i) const { return data + i * stride; }
};

/// The mask of one batch; null data: there is none.
template <class T>
struct MaskRows {
  const void* data;
  bool is_bool;
  int64_t offset = 0, query_stride = 0, key_stride = 0;

  MaskRows(const AttentionCall& call, int64_t batch) : data(call.mask.tensor.data), is_bool(call.mask.dtype == kBool) {
    if (data == nullptr) return;
    const auto strides = call.mask.tensor.strides.last(2);
    offset = batch_offset(call, call.mask.tensor, batch);
    query_stride = strides[0];
    key_stride = strides[1];
  }

  /// Adds the mask to `count` scores of query t and the keys from s on, or (step = query_stride) of key s.
  void add(int64_t t, int64_t s, int64_t step, int64_t count, T* scores) const {
    if (data == nullptr) return;
    const int64_t at = offset + t * query_stride + s * key_stride;
    if (is_bool) {
      const bool* allowed = static_cast<const bool*>(data) + at;
      for (int64_t i = 0; i < count; ++i) scores[i] = allowed[i * step] ? scores[i] : -kInfinity<T>;
    } else {
      const T* added = static_cast<const T*>(data) + at;
      for (int64_t i = 0; i < count; ++i) scores[i] += added[i * step];
    }
  }
};

template <class T>
void scale_row(T* row, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) row[i] *= factor;
}

/// The largest of n values; NaN if one is NaN. n is a multiple of kLanes.
template <class T>
T largest(const T* x, int64_t n) {
  typedef T Vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  constexpr int64_t kWidth = 32 / sizeof(T);
  Vector max = Vector{} - kInfinity<T>, nans = {};
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vector value = *reinterpret_cast<const Vector*>(x + i);
    max = value > max ? value : max;
    nans = value == value ? nans : value;
  }
  T result = max[0], nan = nans[0];
  for (int64_t l = 1; l < kWidth; ++l) {
    result = max[l] > result ? max[l] : result;
    nan += nans[l];
  }
  return nan == nan ? result : nan;
}

/// The sum of n values. n is a multiple of kLanes.
template <class T>
T total(const T* x, int64_t n) {
  typedef T Vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  constexpr int64_t kWidth = 32 / sizeof(T);
  Vector sum = {};
  for (int64_t i = 0; i < n; i += kWidth) sum += *reinterpret_cast<const Vector*>(x + i);
  T result = sum[0];
  for (int64_t l = 1; l < kWidth; ++l) result += sum[l];
  return result;
}

/// Replaces n scores of a row by exp(score - max), where max and sum are over all blocks so far, and pads with zeros to
/// a multiple of kLanes. Returns the factor by which the row's previous results must be multiplied.
template <class T>
T exponentials(T* scores, int64_t n, T& max, T& sum) {
  const int64_t filled = round_up(n, kLanes);
  std::fill(scores + n, scores + filled, -kInfinity<T>);
  const T block_max = largest(scores, filled);
  const T new_max = max >= block_max ? max : block_max;  // NaN is kept
  if (new_max == -kInfinity<T>) {                        // no key so far
    std::fill_n(scores, filled, T(0));
    return 1;
  }
  T factor = 1;
  if (max != new_max) factor = sum == 0 ? T(0) : exp_of_nonpositive(max - new_max);
  for (int64_t i = 0; i < filled; ++i) scores[i] = exp_of_nonpositive(scores[i] - new_max);
  std::fill(scores + n, scores + filled, T(0));
  max = new_max;
  sum = sum * factor + total(scores, filled);
  return factor;
}

/// Task number `task` of the forward pass.
template <class T>
void forward_group(const ForwardPlan<T>& plan, const AttentionCall& call, int64_t task, T* workspace) {
  const AttentionSizes& sizes = call.sizes;
  const int64_t batch = task / plan.groups, group = task % plan.groups;
  const Rows<const T> query(call, call.query, batch), key(call, call.key, batch), value(call, call.value, batch);
  const Rows<T> out(call, call.out, batch);
  const MaskRows<T> mask(call, batch);
  const DropoutRows<T> dropout(call, batch);
  T* const row_max = static_cast<T*>(call.statistics) + batch * sizes.queries;
  T* const log_sum = row_max + sizes.batches * sizes.queries;
  const TileKernels<T>& kernels = plan.kernels;
  const int64_t group_begin = group * plan.blocks_per_group * kQueryBlock;
  const int64_t group_end = std::min(sizes.queries, group_begin + plan.blocks_per_group * kQueryBlock);
  const int64_t keys_needed = sizes.keys_end(group_end - 1);
  // The first key block of a query block; blocks of keys before it are skipped.
  const auto first_keys = [&](int64_t t) { return sizes.keys_begin(t) / plan.key_block * plan.key_block; };
  T* const packed_keys = workspace + plan.keys;
  T* const scores = workspace + plan.scores;
  T* const max = workspace + plan.max - group_begin;
  T* const sum = workspace + plan.sum - group_begin;
  std::fill(max + group_begin, max + group_end, -kInfinity<T>);
  std::fill(sum + group_begin, sum + group_end, T(0));

  for (int64_t key_begin = first_keys(group_begin); key_begin < keys_needed; key_begin += plan.key_block) {
    const int64_t num_keys = std::min(plan.key_block, keys_needed - key_begin);
    pack_columns(kernels, key[key_begin], sizes.head_dim, num_keys, 1, key.stride, packed_keys);
    const RightSide<T> values =
        right_rows(kernels, value[key_begin], num_keys, sizes.value_dim, value.stride, workspace + plan.values);
    for (int64_t begin = group_begin; begin < group_end; begin += kQueryBlock) {
      const int64_t num_queries = std::min(kQueryBlock, group_end - begin);
      if (first_keys(begin) > key_begin || sizes.keys_end(begin + num_queries - 1) <= key_begin) continue;
      const bool is_first = first_keys(begin) == key_begin;
      // The keys of this block to which query begin + i attends: [first(i), limit(i)).
      const auto first = [&](int64_t i) {
        return std::clamp<int64_t>(sizes.keys_begin(begin + i) - key_begin, 0, num_keys);
      };
      const auto limit = [&](int64_t i) {
        return std::clamp<int64_t>(sizes.keys_end(begin + i) - key_begin, 0, num_keys);
      };
      multiply_tiles<T>(kernels, num_queries, num_keys, {query[begin], query.stride},
                        {packed_keys, kernels.columns, sizes.head_dim * kernels.columns}, static_cast<T>(sizes.scale),
                        0, false, scores, plan.key_block, [&](int64_t i, int64_t rows) {
                          return TileRange{0, sizes.head_dim, first(i) / kLanes * kLanes, limit(i + rows - 1)};
                        });
      for (int64_t i = 0; i < num_queries; ++i) {
        T* const row = scores + i * plan.key_block;
        const int64_t n = limit(i);
        mask.add(begin + i, key_begin, mask.key_stride, n, row);
        std::fill_n(row, std::min(first(i), n), -kInfinity<T>);
        const T factor = exponentials(row, n, max[begin + i], sum[begin + i]);
        if (!is_first && factor != 1) scale_row(out[begin + i], sizes.value_dim, factor);
        // The tile of this row is read up to the end of its last row.
        const int64_t filled = round_up(n, kLanes);
        const int64_t read = limit(std::min(i / kernels.rows * kernels.rows + kernels.rows, num_queries) - 1);
        if (filled < read) std::fill(row + filled, row + read, T(0));
        if (dropout.threshold != 0) {
          T* const factors = workspace + plan.factors;
          dropout.factors(begin + i, key_begin, n, factors, 1);
          for (int64_t j = 0; j < n; ++j) row[j] *= factors[j];
        }
      }
      multiply_tiles<T>(kernels, num_queries, sizes.value_dim, {scores, plan.key_block}, values, 1, is_first ? 0 : 1,
                        false, out[begin], out.stride, [&](int64_t i, int64_t rows) {
                          return TileRange{first(i), limit(i + rows - 1), 0, sizes.value_dim};
                        });
    }
  }
  for (int64_t i = group_begin; i < group_end; ++i) {
    const bool empty = sum[i] == 0;
    if (empty) {
      std::fill_n(out[i], sizes.value_dim, T(0));
    } else {
      scale_row(out[i], sizes.value_dim, 1 / sum[i]);
    }
    row_max[i] = max[i];
    log_sum[i] = empty ? -kInfinity<T> : std::log(sum[i]);
  }
}

/// Partition of the backward pass: one task per group of batches.
template <class T>
struct BackwardPlan {
  const TileKernels<T>& kernels;
  int64_t key_block;
  Scratch scratch;
  int64_t key_rows, query_columns, grad_columns, query_rows, grad_rows, weights, errors, row_max, log_sum, products,
      factors;

  explicit BackwardPlan(const AttentionCall& call) : kernels(kernels_of<T>(call)) {
    const AttentionSizes& sizes = call.sizes;
    key_block = std::clamp<int64_t>(round_up(sizes.keys, 64), 64, kKeyBlock);
    key_rows = scratch.take(round_up(sizes.head_dim, kernels.rows) * key_block);
    query_columns = scratch.take(sizes.head_dim * kQueryBlock);
    grad_columns = scratch.take(sizes.value_dim * kQueryBlock);
    query_rows = scratch.take(round_up(sizes.head_dim, kernels.columns) * kQueryBlock);
    grad_rows = scratch.take(round_up(sizes.value_dim, kernels.columns) * kQueryBlock);
    weights = scratch.take(kQueryBlock * key_block);
    errors = scratch.take(kQueryBlock * key_block);
    row_max = scratch.take(kQueryBlock);
    log_sum = scratch.take(kQueryBlock);
    products = scratch.take(round_up(sizes.queries, kQueryBlock));
    factors = scratch.take(DropoutRows<T>(call).size(kQueryBlock * key_block));
  }
};

/// weights = exp(scores - max - log_sum) and errors = weights * (errors - products) for queries [first, last) of one
/// key; 0 for the other queries. With factors of dropout, those are applied to errors before and to weights afterwards.
template <class T>
void weigh_key(int64_t first, int64_t last, const T* __restrict max, const T* __restrict log_sum,
               const T* __restrict products, const T* __restrict factors, T* __restrict weights, T* __restrict errors) {
  const int64_t begin = first / kLanes * kLanes, end = round_up(last, kLanes);
  if (factors != nullptr) {
    for (int64_t c = begin; c < end; ++c) errors[c] *= factors[c];
  }
  for (int64_t c = begin; c < end; ++c) {
    weights[c] = exp_of_nonpositive(weights[c] - max[c] - log_sum[c]);
    errors[c] = weights[c] * (errors[c] - products[c]);
  }
  if (factors != nullptr) {
    for (int64_t c = begin; c < end; ++c) weights[c] *= factors[c];
  }
  for (T* row : {weights, errors}) {
    std::fill(row, row + first, T(0));
    std::fill(row + last, row + kQueryBlock, T(0));
  }
}

template <class T>
void backward_batch(const BackwardPlan<T>& plan, const AttentionCall& call, const AttentionGradients& grads,
                    int64_t batch, T* workspace) {
  const AttentionSizes& sizes = call.sizes;
  const Rows<const T> query(call, call.query, batch), key(call, call.key, batch), value(call, call.value, batch);
  const Rows<const T> out(call, call.out, batch), grad(call, grads.out, batch);
  const Rows<T> grad_query(call, grads.query, batch), grad_key(call, grads.key, batch);
  const Rows<T> grad_value(call, grads.value, batch);
  const MaskRows<T> mask(call, batch);
  const DropoutRows<T> dropout(call, batch);
  const T* const row_max = static_cast<const T*>(call.statistics) + batch * sizes.queries;
  const T* const log_sum = row_max + sizes.batches * sizes.queries;
  const TileKernels<T>& kernels = plan.kernels;
  T* const weights = workspace + plan.weights;
  T* const errors = workspace + plan.errors;
  T* const block_max = workspace + plan.row_max;
  T* const block_log_sum = workspace + plan.log_sum;
  T* const products = workspace + plan.products;
  const T scale = static_cast<T>(sizes.scale);

  for (int64_t s = 0; s < sizes.keys && batch % sizes.group == 0; ++s) {  // the batches of a group add to them
    std::fill_n(grad_key[s], sizes.head_dim, T(0));
    std::fill_n(grad_value[s], sizes.value_dim, T(0));
  }
  for (int64_t i = 0; i < sizes.queries; ++i) {
    if (sizes.keys_begin(i) >= sizes.keys_end(i)) std::fill_n(grad_query[i], sizes.head_dim, T(0));
    products[i] = row_sum<T>(sizes.value_dim, [y = out[i], g = grad[i]](int64_t j) { return y[j] * g[j]; });
  }
  std::fill(products + sizes.queries, products + round_up(sizes.queries, kQueryBlock), T(0));

  const int64_t keys_needed = sizes.queries == 0 ? 0 : sizes.keys_end(sizes.queries - 1);
  const auto first_keys = [&](int64_t t) { return sizes.keys_begin(t) / plan.key_block * plan.key_block; };
  for (int64_t key_begin = first_keys(0); key_begin < keys_needed; key_begin += plan.key_block) {
    const int64_t block_keys = std::min(plan.key_block, keys_needed - key_begin);
    T* const key_rows = workspace + plan.key_rows;
    for (int64_t d = 0; d < sizes.head_dim; d += kernels.rows) {
      kernels.pack_left(key[key_begin] + d, block_keys, std::min<int64_t>(kernels.rows, sizes.head_dim - d), key.stride,
                        key_rows + d * block_keys);
    }
    for (int64_t begin = 0; begin < sizes.queries; begin += kQueryBlock) {
      const int64_t num_queries = std::min(kQueryBlock, sizes.queries - begin);
      // The keys of this block to which query begin + i attends end here; none of its queries attend to later ones.
      const auto keys_limit = [&](int64_t i) {
        return std::clamp<int64_t>(sizes.keys_end(begin + i) - key_begin, 0, block_keys);
      };
      const int64_t num_keys = keys_limit(num_queries - 1);
      if (first_keys(begin) > key_begin || num_keys == 0) continue;
      // The queries of this block that attend to key key_begin + i: [first(i), last(i)).
      const auto first = [&](int64_t i) {
        return std::clamp<int64_t>(sizes.queries_begin(key_begin + i) - begin, 0, num_queries);
      };
      const auto last = [&](int64_t i) {
        return std::clamp<int64_t>(sizes.queries_end(key_begin + i) - begin, first(i), num_queries);
      };
      for (int64_t c = 0; c < kQueryBlock; ++c) {
        // Rows without keys, and rows after the last one, have weights 0.
        const bool empty = c >= num_queries || log_sum[begin + c] == -kInfinity<T>;
        block_max[c] = empty ? kInfinity<T> : row_max[begin + c];
        block_log_sum[c] = empty ? T(0) : log_sum[begin + c];
      }
      T* const query_columns = workspace + plan.query_columns;
      T* const grad_columns = workspace + plan.grad_columns;
      for (int64_t j = 0; j < kQueryBlock; j += kernels.columns) {
        const int64_t columns = std::clamp<int64_t>(num_queries - j, 0, kernels.columns);
        kernels.pack_right(query[begin + j], sizes.head_dim, columns, 1, query.stride,
                           query_columns + j * sizes.head_dim);
        kernels.pack_right(grad[begin + j], sizes.value_dim, columns, 1, grad.stride,
                           grad_columns + j * sizes.value_dim);
      }
      const RightSide<T> query_rows =
          right_rows(kernels, query[begin], num_queries, sizes.head_dim, query.stride, workspace + plan.query_rows);
      const RightSide<T> grad_rows =
          right_rows(kernels, grad[begin], num_queries, sizes.value_dim, grad.stride, workspace + plan.grad_rows);

      // Scores, and gradients of the weights.
      const auto attending_queries = [&](int64_t depth) {
        return [&first, &last, depth](int64_t i, int64_t rows) {
          return TileRange{0, depth, first(i) / kLanes * kLanes, round_up(last(i + rows - 1), kLanes)};
        };
      };
      multiply_tiles<T>(kernels, num_keys, kQueryBlock, {key[key_begin], key.stride},
                        {query_columns, kernels.columns, sizes.head_dim * kernels.columns}, scale, 0, false, weights,
                        kQueryBlock, attending_queries(sizes.head_dim));
      multiply_tiles<T>(kernels, num_keys, kQueryBlock, {value[key_begin], value.stride},
                        {grad_columns, kernels.columns, sizes.value_dim * kernels.columns}, 1, 0, false, errors,
                        kQueryBlock, attending_queries(sizes.value_dim));
      T* const factors = dropout.threshold == 0 ? nullptr : workspace + plan.factors;
      for (int64_t c = 0; factors != nullptr && c < num_queries; ++c) {
        dropout.factors(begin + c, key_begin, num_keys, factors + c, kQueryBlock);
      }
      for (int64_t i = 0; i < num_keys; ++i) {
        T* const row = weights + i * kQueryBlock;
        mask.add(begin, key_begin + i, mask.query_stride, num_queries, row);
        weigh_key(first(i), last(i), block_max, block_log_sum, products + begin,
                  factors == nullptr ? nullptr : factors + i * kQueryBlock, row, errors + i * kQueryBlock);
      }

      // grad_value += weights^T @ grad, grad_key += scale * errors^T @ query.
      const auto summed_queries = [&](int64_t columns) {
        return [&first, &last, columns](int64_t i, int64_t rows) {
          return TileRange{first(i), last(i + rows - 1), 0, columns};
        };
      };
      multiply_tiles<T>(kernels, num_keys, sizes.value_dim, {weights, kQueryBlock}, grad_rows, 1, 1, false,
                        grad_value[key_begin], grad_value.stride, summed_queries(sizes.value_dim));
      multiply_tiles<T>(kernels, num_keys, sizes.head_dim, {errors, kQueryBlock}, query_rows, scale, 1, false,
                        grad_key[key_begin], grad_key.stride, summed_queries(sizes.head_dim));

      // grad_query += scale * errors @ key, computed transposed; 32 queries read only the keys up to the last one of
      // their last query.
      constexpr int64_t kTogether = 32;
      for (int64_t c = 0; c < num_queries; c += kTogether) {
        const int64_t columns = std::min(kTogether, num_queries - c);
        const int64_t first_key = std::clamp<int64_t>(sizes.keys_begin(begin + c) - key_begin, 0, num_keys);
        const int64_t depth = keys_limit(c + columns - 1);
        multiply_tiles<T>(kernels, sizes.head_dim, columns, {key_rows, 0, block_keys * kernels.rows},
                          {errors + c, kQueryBlock, kernels.columns}, scale, first_keys(begin) == key_begin ? 0 : 1,
                          true, grad_query[begin + c], grad_query.stride, [&](int64_t, int64_t) {
                            return TileRange{first_key, depth, 0, columns};
                          });
      }
    }
  }
}

template <class F>
void visit(DType dtype, F f) {
  dtype == kFloat64 ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace

AttentionAlgorithm attention_algorithm(DType dtype) {
  if (dtype != kFloat32) return AttentionAlgorithm::kPlain;
  return is_available(GemmAlgorithm::kAvx512) ? AttentionAlgorithm::kAvx512 : AttentionAlgorithm::kAvx2;
}

namespace cpu {

int64_t attention_workspace_bytes(const KernelContext&, const AttentionCall& call) {
  int64_t bytes = 0;
  visit(call.dtype, [&]<class T>() {
    const ForwardPlan<T> plan(call);
    bytes = pieces_of(plan.tasks(call.sizes)) * plan.scratch.used * static_cast<int64_t>(sizeof(T));
  });
  return bytes;
}

int64_t attention_backward_workspace_bytes(const KernelContext&, const AttentionCall& call, const AttentionGradients&) {
  int64_t bytes = 0;
  visit(call.dtype, [&]<class T>() {
    const BackwardPlan<T> plan(call);
    bytes = pieces_of(call.sizes.batches / call.sizes.group) * plan.scratch.used * static_cast<int64_t>(sizeof(T));
  });
  return bytes;
}

void attention(const KernelContext&, const AttentionCall& call, void* workspace) {
  if (call.sizes.queries == 0) return;
  visit(call.dtype, [&]<class T>() {
    const ForwardPlan<T> plan(call);
    const TraceSpan span(plan.kernels.name, "algorithm");
    const int64_t tasks = plan.tasks(call.sizes), grain = task_grain(tasks);
    parallel_for(tasks, grain, [&](int64_t task, int64_t end) {
      T* const scratch = static_cast<T*>(workspace) + task / grain * plan.scratch.used;
      for (; task < end; ++task) forward_group<T>(plan, call, task, scratch);
    });
  });
}

void attention_backward(const KernelContext&, const AttentionCall& call, const AttentionGradients& grads,
                        void* workspace) {
  visit(call.dtype, [&]<class T>() {
    const BackwardPlan<T> plan(call);
    const TraceSpan span(plan.kernels.name, "algorithm");
    const int64_t group = call.sizes.group, groups = call.sizes.batches / group, grain = task_grain(groups);
    parallel_for(groups, grain, [&](int64_t task, int64_t end) {
      T* const scratch = static_cast<T*>(workspace) + task / grain * plan.scratch.used;
      for (int64_t batch = task * group; batch < end * group; ++batch) {
        backward_batch<T>(plan, call, grads, batch, scratch);
      }
    });
  });
}

}  // namespace cpu
}}  // namespace tandem::v0
