// GPU kernels of layer_norm.
//
// One block per row, which is read three times, from the caches after the first time: for its sum, for the sums of its
// deviations and their squares, and for the result. The sum of deviations corrects the mean, as on the CPU. The
// gradients of weight and bias are column sums: a block sums a piece of rows for some adjacent columns, and the sums of
// pieces are added by a second kernel.
#include <cmath>

#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/block.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::fused_multiply_add;

constexpr int kColumns = 32;  // adjacent columns per block
constexpr int kLines = 8;

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

template <class T>
__global__ void layer_norm_kernel(int64_t rows, int64_t n, Accumulator<T> eps, const T* in, const T* weight,
                                  const T* bias, Accumulator<T>* statistics, T* out) {
  using C = Accumulator<T>;
  const C count = static_cast<C>(n);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = in + row * n;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<C>(x[i]);
    const C mean = block_reduce(sum, C{0}, Plus()) / count;
    C deviations = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C deviation = static_cast<C>(x[i]) - mean;
      deviations += deviation;
      squares = fused_multiply_add(deviation, deviation, squares);
    }
    const C correction = block_reduce(deviations, C{0}, Plus()) / count;
    const C variance = block_reduce(squares, C{0}, Plus()) / count - correction * correction;
    const RowStatistics<C> of_row(mean, correction, C{1} / std::sqrt(variance + eps));
    if (threadIdx.x == 0) {
      C* kept = statistics + row * kLayerNormStatistics;
      kept[0] = of_row.mean;
      kept[1] = of_row.correction;
      kept[2] = of_row.rstd;
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C normal = of_row.normal(static_cast<C>(x[i]));
      const C factor = weight == nullptr ? C{1} : static_cast<C>(weight[i]);
      out[row * n + i] =
          static_cast<T>(fused_multiply_add(normal, factor, bias == nullptr ? C{0} : static_cast<C>(bias[i])));
    }
  }
}

template <class T>
__global__ void input_gradient_kernel(int64_t rows, int64_t n, const T* in, const T* weight,
                                      const Accumulator<T>* statistics, const T* grad, T* grad_in) {
  using C = Accumulator<T>;
  const C count = static_cast<C>(n);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const RowStatistics<C> of_row(statistics + row * kLayerNormStatistics);
    const T* x = in + row * n;
    const T* g = grad + row * n;
    const auto weighted = [&](int64_t i) {
      return weight == nullptr ? static_cast<C>(g[i]) : static_cast<C>(g[i]) * static_cast<C>(weight[i]);
    };
    C sum = 0, along = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C part = weighted(i);
      sum += part;
      along = fused_multiply_add(part, of_row.normal(static_cast<C>(x[i])), along);
    }
    // As on the CPU, the mean is subtracted before multiplying by rstd.
    const C mean = block_reduce(sum, C{0}, Plus()) / count;
    const C slope = -of_row.rstd * of_row.rstd / count * block_reduce(along, C{0}, Plus());
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C rest = fused_multiply_add(static_cast<C>(x[i]) - of_row.mean, slope, -of_row.correction * slope);
      grad_in[row * n + i] = static_cast<T>(fused_multiply_add(weighted(i) - mean, of_row.rstd, rest));
    }
  }
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
template <class T>
__global__ void parameter_sums_kernel(int64_t num_blocks, int64_t rows, int64_t n, int64_t length, const T* in,
                                      const Accumulator<T>* statistics, const T* grad, Accumulator<T>* partial) {
  using C = Accumulator<T>;
  const int64_t stripes = (n + kColumns - 1) / kColumns, pieces = num_blocks / stripes;
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t piece = b / stripes, column = b % stripes * kColumns + threadIdx.x;
    const int64_t end = min((piece + 1) * length, rows);
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

/// slot = or += the sum over the pieces.
template <class T>
__global__ void parameter_gradient_kernel(int64_t n, int64_t pieces, const Accumulator<T>* partial, bool accumulate,
                                          T* slot) {
  const int64_t stripes = (n + kColumns - 1) / kColumns;
  for (int64_t stripe = blockIdx.x; stripe < stripes; stripe += gridDim.x) {
    const int64_t column = stripe * kColumns + threadIdx.x;
    double sum = 0;
    if (column < n) {
      for (int64_t piece = threadIdx.y; piece < pieces; piece += kLines) {
        sum += static_cast<double>(partial[piece * n + column]);
      }
    }
    sum = sum_lines(sum);
    if (threadIdx.y != 0 || column >= n) continue;
    if (accumulate) sum += static_cast<double>(slot[column]);
    slot[column] = static_cast<T>(static_cast<Accumulator<T>>(sum));
  }
}

int64_t num_stripes(int64_t n) { return (n + kColumns - 1) / kColumns; }
/// Rows per piece: enough blocks for a GPU if there are enough rows.
int64_t piece_rows(int64_t rows, int64_t n) { return std::clamp<int64_t>(rows * num_stripes(n) / 1024, 32, 1024); }
int64_t num_pieces(int64_t rows, int64_t n) { return (rows + piece_rows(rows, n) - 1) / piece_rows(rows, n); }

}  // namespace

void layer_norm(const KernelContext& context, DType dtype, int64_t rows, int64_t n, double eps, const void* in,
                const void* weight, const void* bias, void* statistics, void* out) {
  if (rows == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    launch_kernel(context, layer_norm_kernel<T>, blocks_for(rows, 1), threads_for(n), 0, rows, n, static_cast<C>(eps),
                  static_cast<const T*>(in), static_cast<const T*>(weight), static_cast<const T*>(bias),
                  static_cast<C*>(statistics), static_cast<T*>(out));
  });
}

int64_t layer_norm_workspace_bytes(const KernelContext&, DType dtype, int64_t rows, int64_t n) {
  return 2 * num_pieces(rows, n) * n * (dtype == kFloat64 ? 8 : 4);
}

void layer_norm_backward(const KernelContext& context, DType dtype, int64_t rows, int64_t n, const void* in,
                         const void* weight, const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    const T* x = static_cast<const T*>(in);
    const T* g = static_cast<const T*>(grad);
    const C* of_rows = static_cast<const C*>(statistics);
    if (gradients.in != nullptr && rows > 0) {
      launch_kernel(context, input_gradient_kernel<T>, blocks_for(rows, 1), threads_for(n), 0, rows, n, x,
                    static_cast<const T*>(weight), of_rows, g, static_cast<T*>(gradients.in));
    }
    if (gradients.weight == nullptr && gradients.bias == nullptr) return;
    const int64_t pieces = num_pieces(rows, n), num_blocks = pieces * num_stripes(n);
    const dim3 block(kColumns, kLines);
    C* partial = static_cast<C*>(workspace);
    if (num_blocks > 0) {
      launch_kernel(context, parameter_sums_kernel<T>, blocks_for(num_blocks, 1), block, 0, num_blocks, rows, n,
                    piece_rows(rows, n), x, of_rows, g, partial);
    }
    const auto finish = [&](const C* sums, bool accumulate, void* slot) {
      if (slot == nullptr) return;
      launch_kernel(context, parameter_gradient_kernel<T>, blocks_for(num_stripes(n), 1), block, 0, n, pieces, sums,
                    accumulate, static_cast<T*>(slot));
    };
    finish(partial, gradients.accumulate_weight, gradients.weight);
    finish(partial + pieces * n, gradients.accumulate_bias, gradients.bias);
  });
}

}}}  // namespace tandem::v0::cuda
