// GPU kernels of softmax: one warp per row that fits into its registers, else one block per row, contiguous or strided.
#include <tandem/ops/softmax/row_math_cuda.h>
#include <tandem/ops/softmax/softmax_kernels.h>
#include <tandem/tensor/cuda/warp_row.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <class T, class C>
__device__ T softmax_of(C shifted, bool log, C logarithm, C scale) {
  return static_cast<T>(log ? shifted - logarithm : exp_for<T>(shifted) * scale);
}

/// sum: of the gradients of a row, each times its output unless log.
template <class T, class C>
__device__ T gradient_of(C grad, C output, bool log, C sum) {
  return static_cast<T>(log ? grad - exp_for<T>(output) * sum : output * (grad - sum));
}

template <class T, int kPacks>
__global__ void softmax_warp_kernel(int64_t rows, int64_t n, bool log, const T* input, T* out) {
  using C = Accumulator<T>;
  using Own = OwnElements<T, kPacks>;
  for (int64_t row = thread_index() / kWarp; row < rows; row += num_threads() / kWarp) {
    Own own(input + row * n, n);
    C max = -std::numeric_limits<C>::infinity(), sum = 0;
    Own::for_each(n, [&](int k, int64_t) {
#pragma unroll
      for (const T x : own.packs[k].values) max = Larger()(max, static_cast<C>(x));
    });
    max = warp_reduce(max, Larger());
    Own::for_each(n, [&](int k, int64_t) {
#pragma unroll
      for (const T x : own.packs[k].values) sum += exp_for<T>(static_cast<C>(x) - max);
    });
    sum = warp_reduce(sum, Plus());
    const C logarithm = log_of(sum), scale = C{1} / sum;
    Own::for_each(n, [&](int k, int64_t begin) {
#pragma unroll
      for (T& x : own.packs[k].values) x = softmax_of<T>(static_cast<C>(x) - max, log, logarithm, scale);
      store_pack(out + row * n + begin, own.packs[k], Own::kPack);
    });
  }
}

template <class T, int kPacks>
__global__ void softmax_backward_warp_kernel(int64_t rows, int64_t n, bool log, const T* grad, const T* output,
                                             T* grad_input) {
  using C = Accumulator<T>;
  using Own = OwnElements<T, kPacks>;
  for (int64_t row = thread_index() / kWarp; row < rows; row += num_threads() / kWarp) {
    Own grads(grad + row * n, n);
    const Own outputs(output + row * n, n);
    C sum = 0;
    Own::for_each(n, [&](int k, int64_t) {
#pragma unroll
      for (int v = 0; v < Own::kPack; ++v) {
        const C g = static_cast<C>(grads.packs[k].values[v]);
        sum += log ? g : g * static_cast<C>(outputs.packs[k].values[v]);
      }
    });
    sum = warp_reduce(sum, Plus());
    Own::for_each(n, [&](int k, int64_t begin) {
#pragma unroll
      for (int v = 0; v < Own::kPack; ++v) {
        T& g = grads.packs[k].values[v];
        g = gradient_of<T>(static_cast<C>(g), static_cast<C>(outputs.packs[k].values[v]), log, sum);
      }
      store_pack(grad_input + row * n + begin, grads.packs[k], Own::kPack);
    });
  }
}

/// If kPack is not 1, shape.inner is 1.
template <class T, int kPack>
__global__ void softmax_kernel(Extents shape, bool log, const T* input, T* out) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < shape.outer * shape.inner; row += gridDim.x) {
    const int64_t start = row / shape.inner * shape.size * shape.inner + row % shape.inner;
    const T* x = input + start;
    T* y = out + start;
    const RowSum<C> sum = sum_of_exponentials<kPack>(x, shape.size, shape.inner);
    const C logarithm = log_of(sum.sum), scale = C{1} / sum.sum;
    for (int64_t begin = threadIdx.x * kPack; begin < shape.size; begin += blockDim.x * kPack) {
      auto values = load_of_row<kPack>(x, begin, shape.inner);
#pragma unroll
      for (T& value : values.values) value = softmax_of<T>(static_cast<C>(value) - sum.max, log, logarithm, scale);
      store_to_row(y, begin, shape.inner, values);
    }
  }
}

template <class T, int kPack>
__global__ void softmax_backward_kernel(Extents shape, bool log, const T* grad, const T* output, T* grad_input) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < shape.outer * shape.inner; row += gridDim.x) {
    const int64_t start = row / shape.inner * shape.size * shape.inner + row % shape.inner;
    const auto for_packs_of_row = [&](const auto& f) {
      for (int64_t begin = threadIdx.x * kPack; begin < shape.size; begin += blockDim.x * kPack) {
        f(begin, load_of_row<kPack>(grad + start, begin, shape.inner),
          load_of_row<kPack>(output + start, begin, shape.inner));
      }
    };
    CompensatedSum<C> total;
    for_packs_of_row([&](int64_t, const Pack<T, kPack>& grads, const Pack<T, kPack>& outputs) {
      C some = 0;
#pragma unroll
      for (int v = 0; v < kPack; ++v) {
        const C g = static_cast<C>(grads.values[v]);
        some += log ? g : g * static_cast<C>(outputs.values[v]);
      }
      total.add(some);
    });
    const C sum = block_reduce(total.sum, C{0}, Plus());
    for_packs_of_row([&](int64_t begin, Pack<T, kPack> grads, const Pack<T, kPack>& outputs) {
#pragma unroll
      for (int v = 0; v < kPack; ++v) {
        T& g = grads.values[v];
        g = gradient_of<T>(static_cast<C>(g), static_cast<C>(outputs.values[v]), log, sum);
      }
      store_to_row(grad_input + start, begin, shape.inner, grads);
    });
  }
}

/// The size of contiguous rows; 1, so that there are no packs, for other rows.
int64_t contiguous_size(const Extents& shape) { return shape.inner == 1 ? shape.size : 1; }

}  // namespace

void softmax(const KernelContext& context, DType dtype, Extents shape, bool log, const void* input, void* out) {
  const int64_t rows = shape.outer * shape.inner, n = contiguous_size(shape);
  if (rows * shape.size == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* const x = static_cast<const T*>(input);
    T* const y = static_cast<T*>(out);
    visit_row_packs<T>(n, {x, y}, [&]<int kPacks>(std::integral_constant<int, kPacks>) {
      if constexpr (kPacks > 0) {
        launch_kernel(context, softmax_warp_kernel<T, kPacks>, blocks_for(rows, kRowsPerBlock), kRowWarpThreads, 0,
                      rows, n, log, x, y);
      } else {
        visit_pack<T>(n, {x, y}, [&]<int kPack>(std::integral_constant<int, kPack>) {
          launch_kernel(context, softmax_kernel<T, kPack>, blocks_for(rows, 1), threads_for_row(shape.size / kPack), 0,
                        shape, log, x, y);
        });
      }
    });
  });
}

void softmax_backward(const KernelContext& context, DType dtype, Extents shape, bool log, const void* grad,
                      const void* output, void* grad_input) {
  const int64_t rows = shape.outer * shape.inner, n = contiguous_size(shape);
  if (rows * shape.size == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    const T *const g = static_cast<const T*>(grad), *const y = static_cast<const T*>(output);
    T* const result = static_cast<T*>(grad_input);
    visit_row_packs<T>(n, {g, y, result}, [&]<int kPacks>(std::integral_constant<int, kPacks>) {
      if constexpr (kPacks > 0) {
        launch_kernel(context, softmax_backward_warp_kernel<T, kPacks>, blocks_for(rows, kRowsPerBlock),
                      kRowWarpThreads, 0, rows, n, log, g, y, result);
      } else {
        visit_pack<T>(n, {g, y, result}, [&]<int kPack>(std::integral_constant<int, kPack>) {
          launch_kernel(context, softmax_backward_kernel<T, kPack>, blocks_for(rows, 1),
                        threads_for_row(shape.size / kPack), 0, shape, log, g, y, result);
        });
      }
    });
  });
}

}}}  // namespace tandem::v0::cuda
