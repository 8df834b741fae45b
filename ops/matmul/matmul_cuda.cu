// GPU kernels of matrix products: for integers, and for all dtypes if cuBLASLt does not compute the product. A block
// computes a tile of the result, each thread a small part of it; tiles of a and b are staged in shared memory.
#include <type_traits>

#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul/cublaslt_matmul.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int kTile = 64;   // rows and columns of the result per block
constexpr int kDepth = 16;  // of a and b in shared memory at a time
constexpr int kOwn = 4;     // rows and columns per thread
constexpr int kSide = kTile / kOwn;

/// Accumulation type: float32 for half types, unsigned for integers, where overflow wraps around.
template <class T>
using Sum = std::conditional_t<
    std::is_floating_point_v<T>, T,
    std::conditional_t<!std::is_integral_v<T>, float, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>>;

/// A matrix operand of the kernel.
template <class T>
struct Operand {
  const T* data;
  int64_t row_stride;
  int64_t col_stride;

  Operand(const MatrixOperand& m, int64_t offset)
      : data(static_cast<const T*>(m.data) + offset),
        row_stride(m.transposed ? 1 : m.leading),
        col_stride(m.transposed ? m.leading : 1) {}
  __device__ T at(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
};

template <class S>
__device__ S multiply_add(S a, S b, S c) {
  if constexpr (std::is_floating_point_v<S>) {
    return fma(a, b, c);
  } else {
    return a * b + c;
  }
}

template <class T>
__global__ void gemm_kernel(int64_t m, int64_t n, int64_t k, Sum<T> alpha, Operand<T> a, Operand<T> b, Sum<T> beta,
                            const T* bias, bool relu, T* out) {
  using S = Sum<T>;
  __shared__ S a_tile[kDepth][kTile + 1];
  __shared__ S b_tile[kDepth][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;
  const int64_t tiles_across = (n + kTile - 1) / kTile, num_tiles = tiles_across * ((m + kTile - 1) / kTile);
  for (int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    const int64_t row = tile / tiles_across * kTile, column = tile % tiles_across * kTile;
    const bool has_own = row + y < m && column + x < n;
    S sums[kOwn][kOwn] = {};
    for (int64_t depth = 0; depth < k; depth += kDepth) {
      const int num_deep = static_cast<int>(min(k - depth, static_cast<int64_t>(kDepth)));
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kSide * kSide) {
        // Adjacent threads load adjacent elements, along the contiguous dimension of each operand.
        const int ad = a.row_stride == 1 ? i / kTile : i % kDepth, ar = a.row_stride == 1 ? i % kTile : i / kDepth;
        const int bd = b.col_stride == 1 ? i / kTile : i % kDepth, bc = b.col_stride == 1 ? i % kTile : i / kDepth;
        if (ad < num_deep) a_tile[ad][ar] = row + ar < m ? static_cast<S>(a.at(row + ar, depth + ad)) : S{0};
        if (bd < num_deep) b_tile[bd][bc] = column + bc < n ? static_cast<S>(b.at(depth + bd, column + bc)) : S{0};
      }
      __syncthreads();
      for (int d = 0; d < num_deep && has_own; ++d) {
        S left[kOwn], right[kOwn];
        for (int i = 0; i < kOwn; ++i) left[i] = a_tile[d][y + i * kSide];
        for (int j = 0; j < kOwn; ++j) right[j] = b_tile[d][x + j * kSide];
        for (int i = 0; i < kOwn; ++i) {
          for (int j = 0; j < kOwn; ++j) sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) {
        const int64_t r = row + y + i * kSide, c = column + x + j * kSide;
        if (r >= m || c >= n) continue;
        T& target = out[r * n + c];
        S result = alpha * sums[i][j];
        if (beta != S{0}) result = multiply_add(beta, static_cast<S>(target), result);
        if (bias != nullptr) result += static_cast<S>(bias[c]);
        if constexpr (!std::is_integral_v<S>) {
          if (relu && result < S{0}) result = S{0};
        }
        target = static_cast<T>(result);
      }
    }
  }
}

template <class F>
void visit_gemm_dtype(DType dtype, const F& f) {
  switch (dtype) {
    case kUInt8: return f.template operator()<uint8_t>();
    case kInt8: return f.template operator()<int8_t>();
    case kInt16: return f.template operator()<int16_t>();
    case kInt32: return f.template operator()<int32_t>();
    case kInt64: return f.template operator()<int64_t>();
    default: return visit_floating_dtype(dtype, f);
  }
}

}  // namespace

int64_t gemm_workspace_bytes(const KernelContext&, DType dtype, int64_t, int64_t, int64_t, int64_t,
                             const MatrixOperand&, const MatrixOperand&) {
  return cublaslt_workspace_bytes(dtype);
}

void gemm(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
          const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
          double beta, GemmEpilogue epilogue, void* workspace, void* out) {
  if (m == 0 || n == 0 || batches == 0) return;
  if (cublaslt_matmul(context, dtype, batches, m, n, k, alpha, a, a_offsets, b, b_offsets, beta, epilogue.bias,
                      workspace, out)) {
    // Not in cuBLASLt's epilogue: its documentation, max(x, 0), does not define the result for NaN.
    if (epilogue.relu) {
      unary(context, functions::Relu{}, dtype, {batches * m * n, {batches * m * n}, {{1}, {1}}}, out, out);
    }
    return;
  }
  visit_gemm_dtype(dtype, [&]<class T>() {
    using S = Sum<T>;
    const int64_t tiles = ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile);
    for (int64_t i = 0; i < batches; ++i) {
      launch_kernel(context, gemm_kernel<T>, blocks_for(tiles, 1), kSide * kSide, 0, m, n, k,
                    static_cast<S>(static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, double>>(alpha)),
                    Operand<T>(a, a_offsets == nullptr ? 0 : a_offsets[i]),
                    Operand<T>(b, b_offsets == nullptr ? 0 : b_offsets[i]),
                    static_cast<S>(static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, double>>(beta)),
                    static_cast<const T*>(epilogue.bias), epilogue.relu, static_cast<T*>(out) + i * m * n);
    }
  });
}

namespace {

constexpr int kColumns = 32;
constexpr int kMaxRows = 16;
constexpr int64_t kRowBlock = 32;  // rows summed in T's accumulator before the sum is added to a float64 total

/// threadIdx.x selects the column, threadIdx.y the block of rows. With `output`, gradients where output > 0, and else
/// zeros, are written to `masked`.
template <class T>
__global__ void sum_rows_kernel(int64_t rows, int64_t cols, const T* grad, const T* output, double beta, T* masked,
                                T* out) {
  using S = Accumulator<T>;
  __shared__ double totals[kMaxRows][kColumns];
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns; first < cols;
       first += static_cast<int64_t>(gridDim.x) * kColumns) {
    const int64_t c = first + threadIdx.x;
    double total = 0;
    for (int64_t begin = threadIdx.y * kRowBlock; begin < rows && c < cols; begin += blockDim.y * kRowBlock) {
      S sum = 0;
      for (int64_t r = begin; r < min(rows, begin + kRowBlock); ++r) {
        S value = static_cast<S>(grad[r * cols + c]);
        if (output != nullptr) {
          if (static_cast<S>(output[r * cols + c]) <= S{0}) value = S{0};
          masked[r * cols + c] = static_cast<T>(value);
        }
        sum += value;
      }
      total += static_cast<double>(sum);
    }
    if (out == nullptr) continue;
    totals[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && c < cols) {
      for (unsigned y = 1; y < blockDim.y; ++y) total += totals[y][threadIdx.x];
      const double old = beta == 0 ? 0.0 : beta * static_cast<double>(static_cast<S>(out[c]));
      out[c] = static_cast<T>(static_cast<S>(total + old));
    }
    __syncthreads();
  }
}

}  // namespace

void sum_rows(const KernelContext& context, DType dtype, int64_t rows, int64_t cols, const void* grad, double beta,
              void* out) {
  mask_and_sum_rows(context, dtype, rows, cols, grad, nullptr, beta, nullptr, out);
}

void mask_and_sum_rows(const KernelContext& context, DType dtype, int64_t rows, int64_t cols, const void* grad,
                       const void* output, double beta, void* masked, void* bias_grad) {
  if (cols == 0) return;
  const auto threads_below = static_cast<unsigned>(std::clamp<int64_t>(rows / kRowBlock, 1, kMaxRows));
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, sum_rows_kernel<T>, blocks_for((cols + kColumns - 1) / kColumns, 1),
                  dim3(kColumns, threads_below), 0, rows, cols, static_cast<const T*>(grad),
                  static_cast<const T*>(output), beta, static_cast<T*>(masked), static_cast<T*>(bias_grad));
  });
}

}}}  // namespace tandem::v0::cuda
