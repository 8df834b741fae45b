// GPU kernels of matrix products: for integers, and for all dtypes if cuBLASLt does not compute the product. A block
// computes a tile of the result, each thread a small part of it; tiles of a and b are staged in shared memory.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul/cublaslt_matmul.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>
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

/// R: the dtype of the result.
template <class T, class R>
__global__ void gemm_kernel(int64_t m, int64_t n, int64_t k, Sum<T> alpha, Operand<T> a, Operand<T> b, Sum<T> beta,
                            const T* bias, bool relu, R* out) {
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
      const int num_deep = static_cast<int>(::min(k - depth, static_cast<int64_t>(kDepth)));
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
        R& target = out[r * n + c];
        S result = alpha * sums[i][j];
        if (beta != S{0}) result = multiply_add(beta, static_cast<S>(target), result);
        if (bias != nullptr) result += static_cast<S>(bias[c]);
        if constexpr (!std::is_integral_v<S>) {
          if (relu && result < S{0}) result = S{0};
        }
        target = static_cast<R>(result);
      }
    }
  }
}

template <class F>
void visit_gemm_dtype(DType dtype, const F& f) {
  return is_integral(dtype) ? visit_integral_dtype(dtype, f) : visit_floating_dtype(dtype, f);
}

/// Whether all rows of a product of half types begin at multiples of 16 bytes.
bool has_aligned_rows(int64_t n, const MatrixOperand& a, const MatrixOperand& b, const GemmEpilogue& epilogue,
                      const void* out) {
  return (a.leading | b.leading) % 8 == 0 &&
         are_aligned_for_packs(n * 2, {a.data, b.data, epilogue.bias, epilogue.before_gelu, out});
}

/// Whether cuBLASLt computes gelu in the kernel of the product; see docs/decisions/031-gelu-in-products.md.
bool has_gelu_epilogue(Device device) {
  const int major = device_properties(device).compute_major;
  return major == 9 || major == 10;
}

/// Fills rows with a bias of a half type.
struct FillRows {
  int64_t n;
  const uint16_t* bias;
  uint16_t* out;
  __device__ void operator()(int64_t i) const { out[i] = bias[i % n]; }
};

}  // namespace

int64_t gemm_workspace_bytes(const KernelContext&, DType dtype, int64_t, int64_t, int64_t, int64_t,
                             const MatrixOperand&, const MatrixOperand&) {
  return cublaslt_workspace_bytes(dtype);
}

void gemm(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
          const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
          double beta, GemmEpilogue epilogue, void* workspace, void* out) {
  if (m == 0 || n == 0 || batches == 0) return;
  const int64_t elements = batches * m * n;
  const bool is_unaligned_half = (dtype == kBFloat16 || dtype == kFloat16) && !has_aligned_rows(n, a, b, epilogue, out);
  if (epilogue.gelu) {
    // cuBLASLt requires aligned rows for gelu.
    if (!is_unaligned_half && has_gelu_epilogue(context.device) &&
        cublaslt_matmul(context, dtype, batches, m, n, k, alpha, a, a_offsets, b, b_offsets, beta, epilogue, workspace,
                        out)) {
      return;
    }
    void* const product = epilogue.before_gelu == nullptr ? out : epilogue.before_gelu;
    gemm(context, dtype, batches, m, n, k, alpha, a, a_offsets, b, b_offsets, beta, {.bias = epilogue.bias}, workspace,
         product);
    unary(context, functions::Gelu{{}, GeluApproximation::kTanh}, dtype, {elements, {elements}, {{1}, {1}}}, product,
          out);
    return;
  }
  double library_beta = beta;
  GemmEpilogue library_epilogue = epilogue;
  // If rows are not aligned, cuBLASLt 13.1 on an H200 rounds a product of half types before it adds the bias, and so
  // rounds twice. With beta != 0 it still does.
  if (epilogue.bias != nullptr && beta == 0 && is_unaligned_half) {
    // The product is added to the old values of `out` before it is rounded.
    for_each_index(context, elements,
                   FillRows{n, static_cast<const uint16_t*>(epilogue.bias), static_cast<uint16_t*>(out)});
    library_beta = 1;
    library_epilogue.bias = nullptr;
  }
  if (cublaslt_matmul(context, dtype, batches, m, n, k, alpha, a, a_offsets, b, b_offsets, library_beta,
                      library_epilogue, workspace, out)) {
    // Not in cuBLASLt's epilogue: its documentation, max(x, 0), does not define the result for NaN.
    if (epilogue.relu) {
      unary(context, functions::Relu{}, dtype, {elements, {elements}, {{1}, {1}}}, out, out);
    }
    return;
  }
  visit_gemm_dtype(dtype, [&]<class T>() {
    using S = Sum<T>;
    using Number = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    const int64_t tiles = ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile);
    const auto run = [&]<class R>(R* to) {
      for (int64_t i = 0; i < batches; ++i) {
        launch_kernel(context, gemm_kernel<T, R>, blocks_for(tiles, 1), kSide * kSide, 0, m, n, k,
                      static_cast<S>(static_cast<Number>(alpha)),
                      Operand<T>(a, a_offsets == nullptr ? 0 : a_offsets[i]),
                      Operand<T>(b, b_offsets == nullptr ? 0 : b_offsets[i]), static_cast<S>(static_cast<Number>(beta)),
                      static_cast<const T*>(epilogue.bias), epilogue.relu, to + i * m * n);
      }
    };
    if constexpr (kIsHalf<T>) {
      if (epilogue.float32_result) return run(static_cast<float*>(out));
    }
    run(static_cast<T*>(out));
  });
}

namespace {

// Sums of rows. A block sums a *part* of the rows in `width` packs of columns, one per threadIdx.x; threadIdx.y selects
// rows. If there are several parts, a second kernel adds them.
constexpr int kRowsAtOnce = 8;  // the most rows that a thread loads together, see StoredRows::kAtOnce
constexpr int kMinSteps = 2;    // of a block, kRowsAtOnce rows per thread each

/// How rows are divided into parts; depends on sizes and alignment only.
struct RowSplit {
  int64_t rows, cols;
  int pack;               // columns per thread
  int width;              // threads per row
  int64_t column_blocks;  // blocks side by side
  int64_t rows_per_part;
  int64_t parts;

  /// `resident` is the number of blocks that a multiprocessor executes at a time.
  RowSplit(int64_t num_rows, int64_t num_cols, int columns_per_pack, int resident)
      : rows(num_rows), cols(num_cols), pack(columns_per_pack) {
    const int64_t packs = ceil_div<int64_t>(cols, pack);
    width =
        static_cast<int>(std::min<int64_t>(kWarp, std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, packs)))));
    column_blocks = ceil_div<int64_t>(packs, width);
    const int64_t rows_per_step = kBlock / width * kRowsAtOnce, steps = ceil_div(rows, rows_per_step);
    const int64_t wanted = std::clamp<int64_t>(kMultiprocessors * resident / std::max<int64_t>(1, column_blocks), 1,
                                               std::max<int64_t>(1, steps / kMinSteps));
    rows_per_part = std::max<int64_t>(1, ceil_div(steps, wanted)) * rows_per_step;
    parts = std::max<int64_t>(1, ceil_div(rows, rows_per_part));
  }
};

/// The rows to sum: stored numbers.
template <class T>
struct StoredRows {
  /// Rows that a thread loads together, and sums in T's accumulator before it adds the sum to a float64; blocks that a
  /// multiprocessor executes at a time.
  static constexpr int kAtOnce = kRowsAtOnce, kBlocks = 4;
  template <int kPack>
  using Inputs = Pack<T, kPack>;
  const T* data;

  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    return load_pack<kPack>(data + at, kPack);
  }
  template <int kPack>
  __device__ Pack<T, kPack> values(int64_t, const Inputs<kPack>& inputs) const {
    return inputs;
  }
};

/// The rows to sum: gradients of the argument of an activation F, which are also stored to grad_in.
template <class T, class F>
struct ActivationGradients {
  static constexpr int kAtOnce = kRowsAtOnce / 2, kBlocks = 3;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> grad, saved;
  };
  const T* grad;
  const T* saved;
  T* grad_in;

  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    return {load_pack<kPack>(grad + at, kPack), load_pack<kPack>(saved + at, kPack)};
  }
  template <int kPack>
  __device__ Pack<T, kPack> values(int64_t at, const Inputs<kPack>& inputs) const {
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) results.values[v] = F::gradient(inputs.grad.values[v], inputs.saved.values[v]);
    store_pack(grad_in + at, results, kPack);
    return results;
  }
};

struct ReluGradient {
  template <class T>
  __device__ static T gradient(T grad, T result) {
    return static_cast<Accumulator<T>>(result) <= Accumulator<T>{0} ? T{} : grad;
  }
};

struct GeluTanhGradient {
  template <class T>
  __device__ static T gradient(T grad, T argument) {
    return static_cast<T>(
        functions::GeluTanh{}.gradient_for_half(static_cast<float>(grad), static_cast<float>(argument)));
  }
};

/// The result: out = beta * out + sums.
struct RowSums {
  double beta;
  void* out;        // null: not stored
  bool is_float32;  // else of the dtype of the rows

  template <class T>
  __device__ void store(int64_t column, double sum) const {
    const auto store_as = [&]<class R>(R& target) {
      using S = Accumulator<R>;
      const double old = beta == 0 ? 0.0 : beta * static_cast<double>(static_cast<S>(target));
      target = static_cast<R>(static_cast<S>(sum + old));
    };
    if (is_float32) {
      store_as(static_cast<float*>(out)[column]);
    } else {
      store_as(static_cast<T*>(out)[column]);
    }
  }
};

/// Writes the sums of each part to partial[part][column] or, without `partial`, of all rows to `result`; nothing if
/// both are null.
template <class T, int kPack, class Rows>
__global__ void sum_rows_kernel(RowSplit split, Rows from, double* partial, RowSums result) {
  using S = Accumulator<T>;
  __shared__ double totals[kBlock * kPack];
  const int width = split.width, height = static_cast<int>(blockDim.y);
  for (int64_t task = blockIdx.x; task < split.column_blocks * split.parts; task += gridDim.x) {
    const int64_t part = task / split.column_blocks, first = task % split.column_blocks * width * kPack;
    // One multiple of kPack: nvcc emits stores of 4 bytes if it is a sum of two.
    const int64_t c = (task % split.column_blocks * width + static_cast<int64_t>(threadIdx.x)) * kPack;
    const int64_t end = ::min(split.rows, (part + 1) * split.rows_per_part);
    double total[kPack] = {};
    const auto load = [&](int64_t row) { return from.template load<kPack>(row * split.cols + c); };
    const auto add = [&](int64_t row, S(&sums)[kPack], const auto& inputs) {
      const Pack<T, kPack> values = from.template values<kPack>(row * split.cols + c, inputs);
#pragma unroll
      for (int v = 0; v < kPack; ++v) sums[v] += static_cast<S>(values.values[v]);
    };
    int64_t row = part * split.rows_per_part + threadIdx.y;
    for (; c < split.cols && row < end; row += height * Rows::kAtOnce) {
      S sums[kPack] = {};
      if (row + height * (Rows::kAtOnce - 1) < end) {
        typename Rows::template Inputs<kPack> loaded[Rows::kAtOnce];
#pragma unroll
        for (int k = 0; k < Rows::kAtOnce; ++k) loaded[k] = load(row + k * height);
#pragma unroll
        for (int k = 0; k < Rows::kAtOnce; ++k) add(row + k * height, sums, loaded[k]);
      } else {
        for (int64_t r = row; r < end; r += height) add(r, sums, load(r));
      }
#pragma unroll
      for (int v = 0; v < kPack; ++v) total[v] += static_cast<double>(sums[v]);
    }
    if (partial == nullptr && result.out == nullptr) continue;
      // totals[threadIdx.y][v][threadIdx.x], so that a warp writes consecutive numbers.
#pragma unroll
    for (int v = 0; v < kPack; ++v) totals[(threadIdx.y * kPack + v) * width + threadIdx.x] = total[v];
    __syncthreads();
    const int columns = width * kPack;
    for (int i = static_cast<int>(threadIdx.y) * width + static_cast<int>(threadIdx.x); i < columns; i += kBlock) {
      const int64_t column = first + i % width * kPack + i / width;
      if (column >= split.cols) continue;
      double sum = 0;
      for (int y = 0; y < height; ++y) sum += totals[y * columns + i];
      if (partial != nullptr) {
        partial[part * split.cols + column] = sum;
      } else {
        result.store<T>(column, sum);
      }
    }
    __syncthreads();
  }
}

constexpr int kPartRows = 8;

/// Adds up the parts. threadIdx.x selects the column, threadIdx.y the parts.
template <class T>
__global__ void add_parts_kernel(int64_t parts, int64_t cols, const double* partial, RowSums result) {
  __shared__ double totals[kPartRows][kWarp];
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp; first < cols;
       first += static_cast<int64_t>(gridDim.x) * kWarp) {
    const int64_t c = first + threadIdx.x;
    double total = 0;
#pragma unroll 4
    for (int64_t part = threadIdx.y; part < (c < cols ? parts : 0); part += kPartRows)
      total += partial[part * cols + c];
    totals[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && c < cols) {
      for (int y = 1; y < kPartRows; ++y) total += totals[y][threadIdx.x];
      result.store<T>(c, total);
    }
    __syncthreads();
  }
}

}  // namespace

int64_t sum_rows_workspace_bytes(const KernelContext&, DType dtype, int64_t rows, int64_t cols) {
  int64_t bytes = 0;
  visit_floating_dtype(dtype, [&]<class T>() {
    for (const int pack : {1, static_cast<int>(16 / sizeof(T))}) {
      const RowSplit split(rows, cols, pack, StoredRows<T>::kBlocks);  // the most parts
      if (split.parts > 1) bytes = std::max<int64_t>(bytes, split.parts * cols * static_cast<int64_t>(sizeof(double)));
    }
  });
  return bytes;
}

namespace {

/// Sums the rows of `source`, whose memory begins at `pointers`.
template <class T, class Rows>
void sum_rows_of(const KernelContext& context, int64_t rows, int64_t cols, const Rows& source,
                 std::initializer_list<const void*> pointers, void* workspace, const RowSums& result) {
  if (cols == 0) return;
  visit_pack<T>(cols, pointers, [&]<int kPack>(std::integral_constant<int, kPack>) {
    const RowSplit split(rows, cols, kPack, Rows::kBlocks);
    double* const partial = split.parts > 1 && result.out != nullptr ? static_cast<double*>(workspace) : nullptr;
    launch_kernel(context, sum_rows_kernel<T, kPack, Rows>, blocks_for(split.column_blocks * split.parts, 1),
                  dim3(static_cast<unsigned>(split.width), static_cast<unsigned>(kBlock / split.width)), 0, split,
                  source, partial, result);
    if (partial == nullptr) return;
    launch_kernel(context, add_parts_kernel<T>, blocks_for(cols, kWarp), dim3(kWarp, kPartRows), 0, split.parts, cols,
                  static_cast<const double*>(partial), result);
  });
}

}  // namespace

void sum_rows(const KernelContext& context, DType dtype, DType result, int64_t rows, int64_t cols, const void* grad,
              double beta, void* workspace, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    sum_rows_of<T>(context, rows, cols, StoredRows<T>{static_cast<const T*>(grad)}, {grad}, workspace,
                   {beta, out, result == kFloat32});
  });
}

void activation_and_sum_rows(const KernelContext& context, FusedActivation activation, DType dtype, DType result,
                             int64_t rows, int64_t cols, const void* grad, const void* saved, double beta,
                             void* grad_in, void* workspace, void* bias_grad) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const auto run = [&]<class F>(F) {
      const ActivationGradients<T, F> source = {static_cast<const T*>(grad), static_cast<const T*>(saved),
                                                static_cast<T*>(grad_in)};
      sum_rows_of<T>(context, rows, cols, source, {grad, saved, grad_in}, workspace,
                     {beta, bias_grad, result == kFloat32});
    };
    if constexpr (kIsHalf<T>) {
      if (activation == FusedActivation::kGeluTanh) return run(GeluTanhGradient());
    }
    run(ReluGradient());
  });
}

}}}  // namespace tandem::v0::cuda
