// GPU kernels of reductions. Row sums: one block per chunk of a row. Column sums: one block per chunk of some adjacent
// columns, one thread per column. If there are several chunks, a second launch adds their sums.
#include <type_traits>

#include <tandem/ops/reduce/reduce_kernels.h>
#include <tandem/tensor/cuda/block.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kRowChunk = 1 << 15;
constexpr int64_t kColumnChunk = 1 << 10;
constexpr int kColumns = 32;  // adjacent columns per block
constexpr int kMaxRows = 8;

int64_t chunk_length(const ReduceSizes& sizes) { return sizes.inner == 1 ? kRowChunk : kColumnChunk; }
int64_t num_chunks(const ReduceSizes& sizes) {
  return std::max<int64_t>(1, (sizes.reduce + chunk_length(sizes) - 1) / chunk_length(sizes));
}

template <class A, class Out>
__device__ Out divided(A sum, A divisor) {
  if constexpr (std::is_integral_v<A>) {
    return sum;
  } else {
    return static_cast<Out>(sum / divisor);
  }
}

/// Block b computes chunk b of the chunks of all rows.
template <class T, class A, class Out>
__global__ void sum_rows_kernel(int64_t num_blocks, int64_t reduce, int64_t length, int64_t chunks, A divisor,
                                const T* in, Out* out) {
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t begin = b % chunks * length;
    const int64_t end = min(begin + length, reduce);
    const T* row = in + b / chunks * reduce;
    A sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += static_cast<A>(row[i]);
    sum = block_reduce(sum, A{0}, Plus());
    if (threadIdx.x == 0) out[b] = divided<A, Out>(sum, divisor);
  }
}

/// sum_rows for rows so short that one warp per row is enough.
template <class T, class A, class Out>
__global__ void sum_short_rows_kernel(int64_t outer, int64_t reduce, A divisor, const T* in, Out* out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = thread_index() / kWarp; row < outer; row += num_threads() / kWarp) {
    A sum = 0;
    for (int64_t i = lane; i < reduce; i += kWarp) sum += static_cast<A>(in[row * reduce + i]);
    sum = warp_reduce(sum, Plus());
    if (lane == 0) out[row] = divided<A, Out>(sum, divisor);
  }
}

template <class T, class A, class Out>
__global__ void sum_columns_kernel(int64_t num_blocks, ReduceSizes sizes, int64_t length, int64_t chunks, A divisor,
                                   const T* in, Out* out) {
  __shared__ A sums[kMaxRows][kColumns];
  const int64_t stripes = (sizes.inner + kColumns - 1) / kColumns;
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t column = b % stripes * kColumns + threadIdx.x;
    const int64_t piece = b / stripes;  // of [outer, chunks]
    const int64_t begin = piece % chunks * length;
    const int64_t end = min(begin + length, sizes.reduce);
    A sum = 0;
    if (column < sizes.inner) {
      const T* from = in + piece / chunks * sizes.reduce * sizes.inner + column;
      for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) sum += static_cast<A>(from[r * sizes.inner]);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < sizes.inner) {
      for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y][threadIdx.x];
      out[piece * sizes.inner + column] = divided<A, Out>(sum, divisor);
    }
    __syncthreads();
  }
}

template <class T, class A, class Out>
void sum_chunks(const KernelContext& context, const ReduceSizes& sizes, int64_t length, A divisor, const T* in,
                Out* out) {
  const int64_t chunks = std::max<int64_t>(1, (sizes.reduce + length - 1) / length);
  if (sizes.outer * sizes.inner == 0) return;
  if (sizes.inner == 1 && sizes.reduce <= 8 * kWarp) {
    launch_kernel(context, sum_short_rows_kernel<T, A, Out>, blocks_for(sizes.outer, kBlock / kWarp), kBlock, 0,
                  sizes.outer, sizes.reduce, divisor, in, out);
  } else if (sizes.inner == 1) {
    launch_kernel(context, sum_rows_kernel<T, A, Out>, blocks_for(sizes.outer * chunks, 1),
                  threads_for_row(std::min(length, sizes.reduce)), 0, sizes.outer * chunks, sizes.reduce, length,
                  chunks, divisor, in, out);
  } else {
    const auto rows = static_cast<unsigned>(std::clamp<int64_t>(sizes.reduce / 4, 1, kMaxRows));
    const int64_t num_blocks = sizes.outer * chunks * ((sizes.inner + kColumns - 1) / kColumns);
    launch_kernel(context, sum_columns_kernel<T, A, Out>, blocks_for(num_blocks, 1), dim3(kColumns, rows), 0,
                  num_blocks, sizes, length, chunks, divisor, in, out);
  }
}

}  // namespace

int64_t sum_workspace_bytes(const KernelContext&, const ReduceSizes& sizes) {
  const int64_t chunks = num_chunks(sizes);
  return chunks == 1 ? 0 : sizes.outer * chunks * sizes.inner * static_cast<int64_t>(sizeof(double));
}

void sum(const KernelContext& context, DType dtype, const ReduceSizes& sizes, double divisor, const void* in,
         void* workspace, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const A last_divisor = static_cast<A>(divisor);
    const int64_t chunks = num_chunks(sizes);
    if (chunks == 1) {
      sum_chunks<T, A, Out>(context, sizes, chunk_length(sizes), last_divisor, static_cast<const T*>(in),
                            static_cast<Out*>(out));
    } else {
      A* partial = static_cast<A*>(workspace);
      sum_chunks<T, A, A>(context, sizes, chunk_length(sizes), A{1}, static_cast<const T*>(in), partial);
      sum_chunks<A, A, Out>(context, {sizes.outer, chunks, sizes.inner}, chunks, last_divisor, partial,
                            static_cast<Out*>(out));
    }
  });
}

namespace {

/// The compute type: T, or float for half types.
template <class T>
using Comparable = std::conditional_t<std::is_integral_v<T> || std::is_floating_point_v<T>, T, float>;

/// A value and its index. Among equal values, and among NaNs, the first one is selected.
template <class C>
struct Candidate {
  C value;
  int64_t index;

  __device__ bool beats(const Candidate& other) const {
    if (other.index < 0) return true;
    if (index < 0) return false;
    const bool is_nan = value != value, other_is_nan = other.value != other.value;
    if (is_nan || other_is_nan) return is_nan && (!other_is_nan || index < other.index);
    return value > other.value || (value == other.value && index < other.index);
  }
};

/// The best candidate of a block, returned to all of its threads.
template <class C>
__device__ Candidate<C> best_of_block(Candidate<C> mine) {
  __shared__ C values[kMaxRowThreads];
  __shared__ int64_t indices[kMaxRowThreads];
  __syncthreads();
  values[threadIdx.x] = mine.value;
  indices[threadIdx.x] = mine.index;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) {
      const Candidate<C> other{values[threadIdx.x + width], indices[threadIdx.x + width]};
      const Candidate<C> own{values[threadIdx.x], indices[threadIdx.x]};
      if (other.beats(own)) {
        values[threadIdx.x] = other.value;
        indices[threadIdx.x] = other.index;
      }
    }
    __syncthreads();
  }
  return {values[0], indices[0]};
}

/// One block per row of n elements that are `step` apart: the largest element, or its index.
template <class T>
__global__ void largest_kernel(int64_t num_rows, int64_t n, int64_t step, const T* in, T* out, int64_t* out_index) {
  using C = Comparable<T>;
  for (int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
    const T* from = in + row / step * n * step + row % step;
    Candidate<C> best{C{0}, -1};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const Candidate<C> next{static_cast<C>(from[i * step]), i};
      if (next.beats(best)) best = next;
    }
    best = best_of_block(best);
    if constexpr (!std::is_integral_v<C>) {
      if (out != nullptr &&
          best.value == C{0}) {  // there may be zeros of both signs: their sum is -0 only if all are -0
        C zeros = -C{0};
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
          const C x = static_cast<C>(from[i * step]);
          zeros += x == C{0} ? x : -C{0};
        }
        best.value = block_reduce(zeros, -C{0}, Plus());
      }
    }
    if (threadIdx.x == 0) {
      if (out != nullptr) out[row] = static_cast<T>(best.value);
      if (out_index != nullptr) out_index[row] = best.index;
    }
  }
}

}  // namespace

void max(const KernelContext& context, DType dtype, int64_t n, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    launch_kernel(context, largest_kernel<T>, 1, threads_for_row(n), 0, int64_t{1}, n, int64_t{1},
                  static_cast<const T*>(in), static_cast<T*>(out), nullptr);
  });
}

void argmax(const KernelContext& context, DType dtype, const ReduceSizes& sizes, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    const int64_t rows = sizes.outer * sizes.inner;
    launch_kernel(context, largest_kernel<T>, blocks_for(rows, 1), threads_for_row(sizes.reduce), 0, rows, sizes.reduce,
                  sizes.inner, static_cast<const T*>(in), nullptr, static_cast<int64_t*>(out));
  });
}

}}}  // namespace tandem::v0::cuda
