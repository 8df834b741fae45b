// GPU kernels of sums and products. Row sums: one block per chunk of a row. Column sums: one block per chunk of some
// adjacent columns, one thread per column. If there are several chunks, a second launch adds their sums.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/ops/reduce/reduce_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kMinRowChunk = 1 << 15;   // unless a row is shorter
constexpr int64_t kLongRowChunk = 1 << 17;  // about the longest
constexpr int64_t kColumnChunk = 1 << 10;
constexpr int kColumns = 32;  // adjacent columns per block
constexpr int kMaxRows = 8;

int64_t chunk_length(const ReduceSizes& sizes) {
  if (sizes.inner != 1) return kColumnChunk;
  // About as many chunks as blocks that an H200 executes at a time, or a multiple of it, but none shorter than
  // kMinRowChunk.
  constexpr int64_t kBlocksAtATime = 4 * kMultiprocessors;
  const int64_t rounds = ceil_div(sizes.outer * sizes.reduce, kLongRowChunk * kBlocksAtATime);
  const int64_t chunks_per_row = std::max<int64_t>(1, rounds * kBlocksAtATime / std::max<int64_t>(1, sizes.outer));
  return std::max(kMinRowChunk, round_up(ceil_div(sizes.reduce, chunks_per_row), 16));  // 16: any number per access
}
int64_t num_chunks(const ReduceSizes& sizes) {
  return std::max<int64_t>(1, ceil_div(sizes.reduce, chunk_length(sizes)));
}

template <class F>
struct Combine {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return F::combine(a, b);
  }
};

/// Block b computes chunk b of the chunks of all rows, by accesses of kPack elements.
template <class F, class T, class A, class Out, int kPack>
__global__ void fold_rows_kernel(int64_t num_blocks, int64_t reduce, int64_t length, int64_t chunks, A divisor,
                                 const T* in, Out* out) {
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t begin = b % chunks * length;
    const int64_t end = ::min(begin + length, reduce);
    const T* row = in + b / chunks * reduce;
    A sum = F::kStart;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x * kPack; i < end; i += blockDim.x * kPack) {
      const auto x = load_pack<kPack>(row + i, kPack);
#pragma unroll
      for (int v = 0; v < kPack; ++v) sum = F::combine(sum, F::term(static_cast<A>(x.values[v])));
    }
    sum = block_reduce(sum, A{F::kStart}, Combine<F>());
    if (threadIdx.x == 0) out[b] = divided<Out>(sum, divisor);
  }
}

/// fold_rows for rows so short that one warp per row is enough.
template <class F, class T, class A, class Out>
__global__ void fold_short_rows_kernel(int64_t outer, int64_t reduce, A divisor, const T* in, Out* out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = thread_index() / kWarp; row < outer; row += num_threads() / kWarp) {
    A sum = F::kStart;
    for (int64_t i = lane; i < reduce; i += kWarp) sum = F::combine(sum, F::term(static_cast<A>(in[row * reduce + i])));
    sum = warp_reduce(sum, Combine<F>());
    if (lane == 0) out[row] = divided<Out>(sum, divisor);
  }
}

template <class F, class T, class A, class Out>
__global__ void fold_columns_kernel(int64_t num_blocks, ReduceSizes sizes, int64_t length, int64_t chunks, A divisor,
                                    const T* in, Out* out) {
  __shared__ A sums[kMaxRows][kColumns];
  const int64_t stripes = (sizes.inner + kColumns - 1) / kColumns;
  for (int64_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const int64_t column = b % stripes * kColumns + threadIdx.x;
    const int64_t piece = b / stripes;  // of [outer, chunks]
    const int64_t begin = piece % chunks * length;
    const int64_t end = ::min(begin + length, sizes.reduce);
    A sum = F::kStart;
    if (column < sizes.inner) {
      const T* from = in + piece / chunks * sizes.reduce * sizes.inner + column;
      for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
        sum = F::combine(sum, F::term(static_cast<A>(from[r * sizes.inner])));
      }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < sizes.inner) {
      for (unsigned y = 1; y < blockDim.y; ++y) sum = F::combine(sum, sums[y][threadIdx.x]);
      out[piece * sizes.inner + column] = divided<Out>(sum, divisor);
    }
    __syncthreads();
  }
}

template <class F, class T, class A, class Out>
void fold_chunks(const KernelContext& context, const ReduceSizes& sizes, int64_t length, A divisor, const T* in,
                 Out* out) {
  const int64_t chunks = std::max<int64_t>(1, (sizes.reduce + length - 1) / length);
  if (sizes.outer * sizes.inner == 0) return;
  if (sizes.inner == 1 && sizes.reduce <= 8 * kWarp) {
    launch_kernel(context, fold_short_rows_kernel<F, T, A, Out>, blocks_for(sizes.outer, kBlock / kWarp), kBlock, 0,
                  sizes.outer, sizes.reduce, divisor, in, out);
  } else if (sizes.inner == 1) {
    visit_pack<T>(sizes.reduce, {in}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      launch_kernel(context, fold_rows_kernel<F, T, A, Out, kPack>, blocks_for(sizes.outer * chunks, 1),
                    threads_for_row(std::min(length, sizes.reduce) / kPack), 0, sizes.outer * chunks, sizes.reduce,
                    length, chunks, divisor, in, out);
    });
  } else {
    const auto rows = static_cast<unsigned>(std::clamp<int64_t>(sizes.reduce / 4, 1, kMaxRows));
    const int64_t num_blocks = sizes.outer * chunks * ((sizes.inner + kColumns - 1) / kColumns);
    launch_kernel(context, fold_columns_kernel<F, T, A, Out>, blocks_for(num_blocks, 1), dim3(kColumns, rows), 0,
                  num_blocks, sizes, length, chunks, divisor, in, out);
  }
}

}  // namespace

int64_t fold_workspace_bytes(const KernelContext&, const ReduceSizes& sizes) {
  const int64_t chunks = num_chunks(sizes);
  return chunks == 1 ? 0 : sizes.outer * chunks * sizes.inner * static_cast<int64_t>(sizeof(double));
}

void fold(const KernelContext& context, Fold fold, DType dtype, const ReduceSizes& sizes, double divisor,
          const void* in, void* workspace, void* out) {
  visit_fold(fold, dtype, [&]<class T, class F>() {
    using A = Accumulator<T>;
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const A last_divisor = static_cast<A>(divisor);
    const int64_t chunks = num_chunks(sizes);
    if (chunks == 1) {
      fold_chunks<F, T, A, Out>(context, sizes, chunk_length(sizes), last_divisor, static_cast<const T*>(in),
                                static_cast<Out*>(out));
    } else {
      A* partial = static_cast<A*>(workspace);
      fold_chunks<F, T, A, A>(context, sizes, chunk_length(sizes), A{1}, static_cast<const T*>(in), partial);
      fold_chunks<typename F::Chunks, A, A, Out>(context, {sizes.outer, chunks, sizes.inner}, chunks, last_divisor,
                                                 partial, static_cast<Out*>(out));
    }
  });
}

}}}  // namespace tandem::v0::cuda
