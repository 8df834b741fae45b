// GPU kernels of layer_norm, and of rms_norm, whose mean is 0 (not `centres`).
//
// A warp normalizes a row that it keeps in registers: it needs its sum, then the sums of its deviations and their
// squares, then the result. Long or unaligned rows are processed by a block each, which reads them again from the
// caches. The sum of deviations corrects the mean, as on the CPU.
//
// The gradients of weight and bias are column sums, of pieces of rows and then, by another kernel, over the pieces,
// whose sizes depend only on the shape. The kernel that computes the gradient of the input also computes the sums of a
// piece, unless the rows are long or unaligned.
//
// T is the dtype of the input, R that of the result.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/warp_row.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::fused_multiply_add;

constexpr int kColumns = 32;  // adjacent columns per block
constexpr int kLines = 16;
constexpr int kBackwardThreads = 256;  // at most, which process a row together
constexpr int kThreadColumns = 8;      // of each of them

int threads_for(int64_t n) { return n <= 4 * kWarp ? kWarp : n <= 1024 ? 128 : 512; }

/// The row's mean in two parts, and 1 / sqrt(var + eps).
template <class C>
struct RowStatistics {
  C mean;
  C correction;
  C rstd;

  __device__ explicit RowStatistics(const C* from) : mean(from[0]), correction(from[1]), rstd(from[2]) {}
  __device__ RowStatistics(C m, C c, C r) : mean(m), correction(c), rstd(r) {}
  __device__ C normal(C x) const { return fused_multiply_add(x - mean, rstd, -correction * rstd); }
};

/// A parameter's values for a pack; 1 or 0 if there is no parameter.
template <class C, int kPack, class T>
__device__ void load_parameter(const T* parameter, int64_t begin, C missing, C (&values)[kPack]) {
  Pack<T, kPack> pack = {};
  if (parameter != nullptr) pack = load_pack<kPack>(parameter + begin, kPack);
#pragma unroll
  for (int v = 0; v < kPack; ++v) values[v] = parameter == nullptr ? missing : static_cast<C>(pack.values[v]);
}

template <class C>
__device__ void store_statistics(const RowStatistics<C>& of_row, C* to) {
  to[0] = of_row.mean;
  to[1] = of_row.correction;
  to[2] = of_row.rstd;
}

/// One warp per row.
template <class T, class R, int kPacks>
__global__ void layer_norm_warp_kernel(bool centres, int64_t rows, int64_t n, Accumulator<T> eps, const T* in,
                                       const R* added, const T* weight, const T* bias, T* sums,
                                       Accumulator<T>* statistics, R* out) {
  using C = Accumulator<T>;
  using Own = OwnElements<T, kPacks>;
  const C count = static_cast<C>(n);
  for (int64_t row = thread_index() / kWarp; row < rows; row += num_threads() / kWarp) {
    Own x(in + row * n, n);
    if (added != nullptr) {
      Own::for_each(n, [&](int k, int64_t begin) {
        const Pack<R, Own::kPack> y = load_pack<Own::kPack>(added + row * n + begin, Own::kPack);
#pragma unroll
        for (int v = 0; v < Own::kPack; ++v)
          x.packs[k].values[v] = static_cast<T>(static_cast<C>(x.packs[k].values[v]) + static_cast<C>(y.values[v]));
        store_pack(sums + row * n + begin, x.packs[k], Own::kPack);
      });
    }
    C sum = 0;
    Own::for_each(n, [&](int k, int64_t) {
#pragma unroll
      for (int v = 0; v < Own::kPack; ++v) sum += static_cast<C>(x.packs[k].values[v]);
    });
    const C mean = centres ? warp_reduce(sum, Plus()) / count : C{0};
    C deviations = 0, squares = 0;
    Own::for_each(n, [&](int k, int64_t) {
#pragma unroll
      for (int v = 0; v < Own::kPack; ++v) {
        const C deviation = static_cast<C>(x.packs[k].values[v]) - mean;
        deviations += deviation;
        squares = fused_multiply_add(deviation, deviation, squares);
      }
    });
    const C correction = centres ? warp_reduce(deviations, Plus()) / count : C{0};
    const C variance = warp_reduce(squares, Plus()) / count - correction * correction;
    const RowStatistics<C> of_row(mean, correction, C{1} / std::sqrt(variance + eps));
    if (threadIdx.x % kWarp == 0) store_statistics(of_row, statistics + row * kLayerNormStatistics);
    Own::for_each(n, [&](int k, int64_t begin) {
      C factors[Own::kPack], offsets[Own::kPack];
      load_parameter(weight, begin, C{1}, factors);
      load_parameter(bias, begin, C{0}, offsets);
      Pack<R, Own::kPack> results;
#pragma unroll
      for (int v = 0; v < Own::kPack; ++v) {
        const C normal = of_row.normal(static_cast<C>(x.packs[k].values[v]));
        results.values[v] = static_cast<R>(fused_multiply_add(normal, factors[v], offsets[v]));
      }
      store_pack(out + row * n + begin, results, Own::kPack);
    });
  }
}

/// The sums over a row of n elements that f(i, sums) accumulates, by a block.
template <class C, int kSums, class F>
__device__ Pack<C, kSums> sum_row(int64_t n, F f) {
  double totals[kSums] = {};
  for (int64_t begin = 0; begin < n; begin += kLayerNormChunk) {
    Pack<C, kSums> chunk = {};
    const int64_t end = ::min(n, begin + kLayerNormChunk);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) f(i, chunk.values);
#pragma unroll
    for (int v = 0; v < kSums; ++v) totals[v] += static_cast<double>(chunk.values[v]);
  }
  Pack<C, kSums> sums;
#pragma unroll
  for (int v = 0; v < kSums; ++v) sums.values[v] = block_reduce(static_cast<C>(totals[v]), C{0}, Plus());
  return sums;
}

/// One block per row.
template <class T, class R>
__global__ void layer_norm_kernel(bool centres, int64_t rows, int64_t n, Accumulator<T> eps, const T* in,
                                  const R* added, const T* weight, const T* bias, T* sums, Accumulator<T>* statistics,
                                  R* out) {
  using C = Accumulator<T>;
  const C count = static_cast<C>(n);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = in + row * n;
    if (added != nullptr) {
      T* const to = sums + row * n;
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        to[i] = static_cast<T>(static_cast<C>(x[i]) + static_cast<C>(added[row * n + i]));
      x = to;  // each thread reads what it has written
    }
    C mean = 0, correction = 0, variance = 0;
    if (centres) mean = sum_row<C, 1>(n, [&](int64_t i, C* sum) { *sum += static_cast<C>(x[i]); }).values[0] / count;
    for (bool is_first = true;; is_first = false) {
      const Pack<C, 2> moments = sum_row<C, 2>(n, [&](int64_t i, C* sum) {
        const C deviation = static_cast<C>(x[i]) - mean;
        sum[0] += deviation;
        sum[1] = fused_multiply_add(deviation, deviation, sum[1]);
      });
      if (centres) correction = moments.values[0] / count;
      variance = moments.values[1] / count - correction * correction;
      if (!is_first || !is_large_correction(correction, variance)) break;
      mean += correction;
    }
    const RowStatistics<C> of_row(mean, correction, C{1} / std::sqrt(variance + eps));
    if (threadIdx.x == 0) store_statistics(of_row, statistics + row * kLayerNormStatistics);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C normal = of_row.normal(static_cast<C>(x[i]));
      const C factor = weight == nullptr ? C{1} : static_cast<C>(weight[i]);
      out[row * n + i] =
          static_cast<R>(fused_multiply_add(normal, factor, bias == nullptr ? C{0} : static_cast<C>(bias[i])));
    }
  }
}

/// Replaces both values by their sums over the threads of a block of at most kBackwardThreads, with one barrier. `turn`
/// must alternate between 0 and 1: then no thread writes a number that another still reads for the previous call.
template <class C>
__device__ void sum_block(C (&values)[2], int turn) {
  constexpr int kMaxWarps = kBackwardThreads / kWarp;
  __shared__ Pack<C, 2> of_warps[2][kMaxWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  Pack<C, 2> sums = {{warp_reduce(values[0], Plus()), warp_reduce(values[1], Plus())}};
  if (threadIdx.x % kWarp == 0) of_warps[turn][warp] = sums;
  __syncthreads();
  sums = of_warps[turn][0];
#pragma unroll
  for (int w = 1; w < kMaxWarps; ++w) {
    if (w >= warps) break;
    sums.values[0] += of_warps[turn][w].values[0];
    sums.values[1] += of_warps[turn][w].values[1];
  }
  values[0] = sums.values[0];
  values[1] = sums.values[1];
}

/// The gradient of a row: of `weighted`, the gradient times the weight, of x, and of their sums over the row. As on the
/// CPU, the mean is subtracted before multiplying by rstd.
template <class C>
struct RowGradient {
  RowStatistics<C> of_row;
  C mean, slope;

  __device__ RowGradient(const RowStatistics<C>& statistics, bool centres, C count, C sum, C along)
      : of_row(statistics),
        mean(centres ? sum / count : C{0}),
        slope(-statistics.rstd * statistics.rstd / count * along) {}
  __device__ C operator()(C weighted, C x) const {
    const C rest = fused_multiply_add(x - of_row.mean, slope, -of_row.correction * slope);
    return fused_multiply_add(weighted - mean, of_row.rstd, rest);
  }
};

/// The threads of a block have kThreadColumns columns each, in all rows of a piece: so a thread reads its weights once,
/// and keeps its sums for weight and bias, which it stores to `partial` as parameter_sums_kernel does. Null results are
/// not computed.
template <class T, class R>
__global__ void __launch_bounds__(kBackwardThreads, 3)
    backward_kernel(bool centres, int64_t pieces, int64_t rows, int64_t n, int64_t length, const T* in, const T* weight,
                    const Accumulator<T>* statistics, const R* grad, bool accumulate, T* grad_in,
                    Accumulator<T>* partial) {
  using C = Accumulator<T>;
  constexpr int kPack = static_cast<int>(16 / sizeof(T)), kPacks = kThreadColumns / kPack;
  const auto for_each = [&](auto f) { for_each_pack<kPacks, kPack>(threadIdx.x, blockDim.x, n, f); };
  C weights[kPacks][kPack];
  for_each([&](int k, int64_t begin) { load_parameter(weight, begin, C{1}, weights[k]); });
  int turn = 0;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t end = ::min((piece + 1) * length, rows);
    Pack<C, kPack> weight_sums[kPacks] = {}, bias_sums[kPacks] = {};
    for (int64_t row = piece * length; row < end; ++row) {
      const RowStatistics<C> of_row(statistics + row * kLayerNormStatistics);
      Pack<T, kPack> x[kPacks], results[kPacks] = {};
      Pack<R, kPack> g[kPacks];
      for_each([&](int k, int64_t begin) {
        x[k] = load_pack<kPack>(in + row * n + begin, kPack);
        g[k] = load_pack<kPack>(grad + row * n + begin, kPack);
        if (accumulate) results[k] = load_pack<kPack>(grad_in + row * n + begin, kPack);
      });
      C sums[2] = {};
      for_each([&](int k, int64_t) {
#pragma unroll
        for (int v = 0; v < kPack; ++v) {
          const C normal = of_row.normal(static_cast<C>(x[k].values[v])), gradient = static_cast<C>(g[k].values[v]);
          weight_sums[k].values[v] = fused_multiply_add(gradient, normal, weight_sums[k].values[v]);
          bias_sums[k].values[v] += gradient;
          sums[0] += gradient * weights[k][v];
          sums[1] = fused_multiply_add(gradient * weights[k][v], normal, sums[1]);
        }
      });
      if (grad_in == nullptr) continue;
      sum_block(sums, turn);
      turn = 1 - turn;
      const RowGradient<C> gradient(of_row, centres, static_cast<C>(n), sums[0], sums[1]);
      for_each([&](int k, int64_t begin) {
#pragma unroll
        for (int v = 0; v < kPack; ++v) {
          const C value = gradient(static_cast<C>(g[k].values[v]) * weights[k][v], static_cast<C>(x[k].values[v]));
          results[k].values[v] = static_cast<T>(accumulate ? value + static_cast<C>(results[k].values[v]) : value);
        }
        store_pack(grad_in + row * n + begin, results[k], kPack);
      });
    }
    if (partial == nullptr) continue;
    for_each([&](int k, int64_t begin) {
      store_pack(partial + piece * n + begin, weight_sums[k], kPack);
      store_pack(partial + (pieces + piece) * n + begin, bias_sums[k], kPack);
    });
  }
}

/// One block per row.
template <class T, class R>
__global__ void input_gradient_kernel(bool centres, int64_t rows, int64_t n, const T* in, const T* weight,
                                      const Accumulator<T>* statistics, const R* grad, bool accumulate, T* grad_in) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const RowStatistics<C> of_row(statistics + row * kLayerNormStatistics);
    const T* x = in + row * n;
    const R* g = grad + row * n;
    const auto weighted = [&](int64_t i) {
      return weight == nullptr ? static_cast<C>(g[i]) : static_cast<C>(g[i]) * static_cast<C>(weight[i]);
    };
    const Pack<C, 2> sums = sum_row<C, 2>(n, [&](int64_t i, C* sum) {
      const C part = weighted(i);
      sum[0] += part;
      sum[1] = fused_multiply_add(part, of_row.normal(static_cast<C>(x[i])), sum[1]);
    });
    const RowGradient<C> gradient(of_row, centres, static_cast<C>(n), sums.values[0], sums.values[1]);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C value = gradient(weighted(i), static_cast<C>(x[i]));
      T& result = grad_in[row * n + i];
      result = static_cast<T>(accumulate ? value + static_cast<C>(result) : value);
    }
  }
}

/// Calls f.operator()<T, R>() with the types of the two dtypes.
template <class F>
void visit_dtypes(DType dtype, DType result, const F& f) {
  visit_floating_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, float>) {
      if (result == kBFloat16) return f.template operator()<float, BFloat16>();
      if (result == kFloat16) return f.template operator()<float, Half>();
    }
    f.template operator()<T, T>();
  });
}

/// The sum of each column over the lines of a block, returned to the threads of line 0. Must be called by all threads
/// of the block.
template <class C>
__device__ C sum_lines(C value) {
  __shared__ C values[kLines][kColumns];
  __syncthreads();  // all reads of an earlier call are complete
  values[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.y == 0) {
    for (int y = 1; y < kLines; ++y) value += values[y][threadIdx.x];
  }
  return value;
}

/// partial[0, piece] and partial[1, piece] = the sums for weight and bias of `length` rows, [n] each.
template <class T, class R>
__global__ void parameter_sums_kernel(int64_t num_blocks, int64_t rows, int64_t n, int64_t length, const T* in,
                                      const Accumulator<T>* statistics, const R* grad, Accumulator<T>* partial) {
  using C = Accumulator<T>;
  const int64_t stripes = (n + kColumns - 1) / kColumns, pieces = num_blocks / stripes;
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t piece = b / stripes, column = b % stripes * kColumns + threadIdx.x;
    const int64_t end = ::min((piece + 1) * length, rows);
    C weight_sum = 0, bias_sum = 0;
    if (column < n) {
      for (int64_t row = piece * length + threadIdx.y; row < end; row += kLines) {
        const RowStatistics<C> of_row(statistics + row * kLayerNormStatistics);
        const C g = static_cast<C>(grad[row * n + column]);
        weight_sum = fused_multiply_add(g, of_row.normal(static_cast<C>(in[row * n + column])), weight_sum);
        bias_sum += g;
      }
    }
    weight_sum = sum_lines(weight_sum);
    bias_sum = sum_lines(bias_sum);
    if (threadIdx.y != 0 || column >= n) continue;
    partial[piece * n + column] = weight_sum;
    partial[(pieces + piece) * n + column] = bias_sum;
  }
}

/// The gradients of weight and bias: slot = or += the sum over the pieces.
template <class T>
__global__ void parameter_gradients_kernel(int64_t n, int64_t pieces, const Accumulator<T>* partial,
                                           LayerNormGradients gradients) {
  const int64_t stripes = (n + kColumns - 1) / kColumns;
  for (int64_t b = blockIdx.x; b < 2 * stripes; b += gridDim.x) {
    const bool of_bias = b >= stripes;
    T* const slot = static_cast<T*>(of_bias ? gradients.bias : gradients.weight);
    if (slot == nullptr) continue;
    const int64_t column = b % stripes * kColumns + threadIdx.x;
    const int64_t first = of_bias ? pieces : 0;
    double sum = 0;
    if (column < n) {
#pragma unroll 8
      for (int64_t piece = threadIdx.y; piece < pieces; piece += kLines) {
        sum += static_cast<double>(partial[(first + piece) * n + column]);
      }
    }
    sum = sum_lines(sum);
    if (threadIdx.y != 0 || column >= n) continue;
    if (of_bias ? gradients.accumulate_bias : gradients.accumulate_weight) sum += static_cast<double>(slot[column]);
    slot[column] = static_cast<T>(sum);
  }
}

int64_t num_stripes(int64_t n) { return ceil_div<int64_t>(n, kColumns); }
int64_t row_warps(int64_t n) { return ceil_div<int64_t>(n, kWarp * kThreadColumns); }
/// Rows per piece: if there are enough rows, as many warps as a GPU runs at the same time. A float32 sum has at
/// most 256 terms.
int64_t piece_rows(int64_t rows, int64_t n) {
  return std::clamp<int64_t>(ceil_div<int64_t>(rows * row_warps(n), 3072), 8, 256);
}
int64_t num_pieces(int64_t rows, int64_t n) { return ceil_div(rows, piece_rows(rows, n)); }

}  // namespace

void layer_norm(const KernelContext& context, DType dtype, DType result, bool centres, int64_t rows, int64_t n,
                double eps, const void* in, const void* added, const void* weight, const void* bias, void* sum,
                void* statistics, void* out) {
  if (rows == 0) return;
  visit_dtypes(dtype, result, [&]<class T, class R>() {
    using C = Accumulator<T>;
    const auto launch = [&](auto* kernel, unsigned blocks, int threads) {
      launch_kernel(context, kernel, blocks, threads, 0, centres, rows, n, static_cast<C>(eps),
                    static_cast<const T*>(in), static_cast<const R*>(added), static_cast<const T*>(weight),
                    static_cast<const T*>(bias), static_cast<T*>(sum), static_cast<C*>(statistics),
                    static_cast<R*>(out));
    };
    visit_row_packs<T>(n, {in, added, weight, bias, sum, out}, [&]<int kPacks>(std::integral_constant<int, kPacks>) {
      if constexpr (kPacks == 0) {
        launch(layer_norm_kernel<T, R>, blocks_for(rows, 1), threads_for(n));
      } else {
        launch(layer_norm_warp_kernel<T, R, kPacks>, blocks_for(rows, kRowsPerBlock), kRowWarpThreads);
      }
    });
  });
}

int64_t layer_norm_workspace_bytes(const KernelContext&, DType dtype, int64_t rows, int64_t n) {
  return 2 * num_pieces(rows, n) * n * (dtype == kFloat64 ? 8 : 4);
}

void layer_norm_backward(const KernelContext& context, DType dtype, DType result, bool centres, int64_t rows, int64_t n,
                         const void* in, const void* weight, const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients) {
  visit_dtypes(dtype, result, [&]<class T, class R>() {
    using C = Accumulator<T>;
    const T* x = static_cast<const T*>(in);
    const R* g = static_cast<const R*>(grad);
    const T* factors = static_cast<const T*>(weight);
    const C* of_rows = static_cast<const C*>(statistics);
    T* grad_in = static_cast<T*>(gradients.in);
    const bool has_parameters = gradients.weight != nullptr || gradients.bias != nullptr;
    C* partial = has_parameters ? static_cast<C*>(workspace) : nullptr;
    const int64_t length = piece_rows(rows, n), pieces = num_pieces(rows, n), sums = pieces * num_stripes(n);
    const dim3 block(kColumns, kLines);
    visit_row_packs<T>(n, {x, weight, g, grad_in}, [&]<int kPacks>(std::integral_constant<int, kPacks>) {
      if (rows == 0) return;
      if constexpr (kPacks > 0) {
        static_assert(8 * kWarp * (16 / sizeof(T)) <= kBackwardThreads * kThreadColumns);
        const int threads = static_cast<int>(row_warps(n)) * kWarp;
        launch_kernel(context, backward_kernel<T, R>, blocks_for(pieces, 1), threads, 0, centres, pieces, rows, n,
                      length, x, factors, of_rows, g, gradients.accumulate_in, grad_in, partial);
      } else {
        if (grad_in != nullptr) {
          launch_kernel(context, input_gradient_kernel<T, R>, blocks_for(rows, 1), threads_for(n), 0, centres, rows, n,
                        x, factors, of_rows, g, gradients.accumulate_in, grad_in);
        }
        if (has_parameters) {
          launch_kernel(context, parameter_sums_kernel<T, R>, blocks_for(sums, 1), block, 0, sums, rows, n, length, x,
                        of_rows, g, partial);
        }
      }
    });
    if (has_parameters) {
      launch_kernel(context, parameter_gradients_kernel<T>, blocks_for(2 * num_stripes(n), 1), block, 0, n, pieces,
                    partial, gradients);
    }
  });
}

}}}  // namespace tandem::v0::cuda
