#include <tandem/base/math.h>
#include <tandem/ops/embedding/embedding_kernels.h>
#include <tandem/ops/index/sort_cuda.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Rows of d units T. Index 0 in place of an invalid index, which check_indices has reported.
template <class T>
struct TakeRows {
  int64_t rows;
  int64_t d;
  const int64_t* indices;
  const T* weight;
  T* out;
  __device__ void operator()(int64_t i) const {
    const int64_t index = indices[i / d];
    out[i] = weight[(index >= 0 && index < rows ? index : 0) * d + i % d];
  }
};

/// One warp per row of the weight and kWarp packs of columns; it adds the row's uses in order.
template <class T, int kPack>
__global__ void embedding_backward_kernel(int64_t rows, int64_t d, int64_t padding, const sorting::Pair* pairs,
                                          const int64_t* starts, const T* grad, bool accumulate, T* grad_weight) {
  using C = Accumulator<T>;
  const int64_t stripes = (d + kWarp * kPack - 1) / (kWarp * kPack);
  for (int64_t i = thread_index() / kWarp; i < rows * stripes; i += num_threads() / kWarp) {
    const int64_t row = i / stripes, column = (i % stripes * kWarp + threadIdx.x % kWarp) * kPack;
    const int64_t begin = starts[row], end = row == padding ? begin : starts[row + 1];
    if ((begin == end && accumulate) || column >= d) continue;
    C sums[kPack] = {};
#pragma unroll 8
    for (int64_t use = begin; use < end; ++use) {
      const auto own = load_pack<kPack>(grad + pairs[use].position * d + column, kPack);
#pragma unroll
      for (int v = 0; v < kPack; ++v) sums[v] += static_cast<C>(own.values[v]);
    }
    T* const target = grad_weight + row * d + column;
    Pack<T, kPack> results = {};
    if (accumulate) results = load_pack<kPack>(target, kPack);
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      results.values[v] = static_cast<T>(accumulate ? sums[v] + static_cast<C>(results.values[v]) : sums[v]);
    }
    store_pack(target, results, kPack);
  }
}

}  // namespace

void embedding(const KernelContext& context, int64_t element_bytes, int64_t n, int64_t rows, int64_t d,
               const int64_t* indices, const void* weight, void* out) {
  const auto run = [&]<class T>(T) {
    const int64_t units = d * element_bytes / static_cast<int64_t>(sizeof(T));
    for_each_index(context, n * units,
                   TakeRows<T>{rows, units, indices, static_cast<const T*>(weight), static_cast<T*>(out)});
  };
  using Wide = Pack<uint32_t, 4>;
  if (d * element_bytes % sizeof(Wide) == 0 && is_aligned_for_packs(weight) && is_aligned_for_packs(out))
    return run(Wide{});
  switch (element_bytes) {
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    default: return run(uint64_t{});
  }
}

int64_t embedding_backward_workspace_bytes(const KernelContext&, int64_t n, int64_t rows) {
  return starts_workspace_bytes(n, rows);
}

void embedding_backward(const KernelContext& context, DType dtype, int64_t n, int64_t rows, int64_t d, int64_t padding,
                        const int64_t* indices, const void* grad, bool accumulate, void* workspace, void* grad_weight) {
  if (rows * d == 0) return;
  const sorting::Pair* pairs = sorted_pairs(context, n, rows, indices, workspace);
  const int64_t* starts = starts_of_keys(context, n, rows, pairs, workspace);
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_pack<T>(d, {grad, grad_weight}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      const int64_t warps = rows * ceil_div<int64_t>(d, kWarp * kPack);
      launch_kernel(context, embedding_backward_kernel<T, kPack>, blocks_for(warps, kBlock / kWarp), kBlock, 0, rows, d,
                    padding, pairs, starts, static_cast<const T*>(grad), accumulate, static_cast<T*>(grad_weight));
    });
  });
}

}}}  // namespace tandem::v0::cuda
