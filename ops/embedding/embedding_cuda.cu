#include <tandem/ops/embedding/embedding_kernels.h>
#include <tandem/ops/index/sort_cuda.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Index 0 in place of an invalid index, which check_indices has reported.
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

/// One block per row of the weight; it adds the row's uses in order.
template <class T>
__global__ void embedding_backward_kernel(int64_t n, int64_t rows, int64_t d, int64_t padding,
                                          const sorting::Pair* pairs, const T* grad, bool accumulate, T* grad_weight) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t begin = sorting::lower_bound(pairs, n, row);
    const int64_t end = row == padding ? begin : sorting::lower_bound(pairs, n, row + 1);
    if (begin == end && accumulate) continue;
    for (int64_t c = threadIdx.x; c < d; c += blockDim.x) {
      C sum = 0;
      for (int64_t use = begin; use < end; ++use) sum += static_cast<C>(grad[pairs[use].position * d + c]);
      T& target = grad_weight[row * d + c];
      target = static_cast<T>(accumulate ? sum + static_cast<C>(target) : sum);
    }
  }
}

}  // namespace

void embedding(const KernelContext& context, int64_t element_bytes, int64_t n, int64_t rows, int64_t d,
               const int64_t* indices, const void* weight, void* out) {
  const auto run = [&]<class T>(T) {
    for_each_index(context, n * d, TakeRows<T>{rows, d, indices, static_cast<const T*>(weight), static_cast<T*>(out)});
  };
  switch (element_bytes) {
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    default: return run(uint64_t{});
  }
}

int64_t embedding_backward_workspace_bytes(const KernelContext&, int64_t n, int64_t) { return sort_workspace_bytes(n); }

void embedding_backward(const KernelContext& context, DType dtype, int64_t n, int64_t rows, int64_t d, int64_t padding,
                        const int64_t* indices, const void* grad, bool accumulate, void* workspace, void* grad_weight) {
  if (rows * d == 0) return;
  const sorting::Pair* pairs = sorted_pairs(context, n, rows, indices, workspace);
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, embedding_backward_kernel<T>, blocks_for(rows, 1), 128, 0, n, rows, d, padding, pairs,
                  static_cast<const T*>(grad), accumulate, static_cast<T*>(grad_weight));
  });
}

}}}  // namespace tandem::v0::cuda
