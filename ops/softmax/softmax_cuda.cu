// GPU kernels of softmax: one block per row, contiguous or strided.
#include <tandem/ops/softmax/row_math_cuda.h>
#include <tandem/ops/softmax/softmax_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// If kPack is not 1, shape.inner is 1.
template <class T, int kPack>
__global__ void softmax_kernel(SoftmaxShape shape, bool log, const T* input, T* out) {
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
      for (T& value : values.values) {
        const C shifted = static_cast<C>(value) - sum.max;
        value = static_cast<T>(log ? shifted - logarithm : exp_for<T>(shifted) * scale);
      }
      store_to_row(y, begin, shape.inner, values);
    }
  }
}

template <class T, int kPack>
__global__ void softmax_backward_kernel(SoftmaxShape shape, bool log, const T* grad, const T* output, T* grad_input) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < shape.outer * shape.inner; row += gridDim.x) {
    const int64_t start = row / shape.inner * shape.size * shape.inner + row % shape.inner;
    const auto for_each_pack = [&](const auto& f) {
      for (int64_t begin = threadIdx.x * kPack; begin < shape.size; begin += blockDim.x * kPack) {
        f(begin, load_of_row<kPack>(grad + start, begin, shape.inner),
          load_of_row<kPack>(output + start, begin, shape.inner));
      }
    };
    C sum = 0;
    for_each_pack([&](int64_t, const Pack<T, kPack>& grads, const Pack<T, kPack>& outputs) {
#pragma unroll
      for (int v = 0; v < kPack; ++v) {
        const C g = static_cast<C>(grads.values[v]);
        sum += log ? g : g * static_cast<C>(outputs.values[v]);
      }
    });
    sum = block_reduce(sum, C{0}, Plus());
    for_each_pack([&](int64_t begin, Pack<T, kPack> grads, const Pack<T, kPack>& outputs) {
#pragma unroll
      for (int v = 0; v < kPack; ++v) {
        const C g = static_cast<C>(grads.values[v]), y = static_cast<C>(outputs.values[v]);
        grads.values[v] = static_cast<T>(log ? g - exp_for<T>(y) * sum : y * (g - sum));
      }
      store_to_row(grad_input + start, begin, shape.inner, grads);
    });
  }
}

/// The size of contiguous rows; 1, so that there are no packs, for other rows.
int64_t contiguous_size(const SoftmaxShape& shape) { return shape.inner == 1 ? shape.size : 1; }

}  // namespace

void softmax(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* input, void* out) {
  if (shape.outer * shape.size * shape.inner == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_pack<T>(contiguous_size(shape), {input, out}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      launch_kernel(context, softmax_kernel<T, kPack>, blocks_for(shape.outer * shape.inner, 1),
                    threads_for_row(shape.size / kPack), 0, shape, log, static_cast<const T*>(input),
                    static_cast<T*>(out));
    });
  });
}

void softmax_backward(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* grad,
                      const void* output, void* grad_input) {
  if (shape.outer * shape.size * shape.inner == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_pack<T>(contiguous_size(shape), {grad, output, grad_input},
                  [&]<int kPack>(std::integral_constant<int, kPack>) {
                    launch_kernel(context, softmax_backward_kernel<T, kPack>, blocks_for(shape.outer * shape.inner, 1),
                                  threads_for_row(shape.size / kPack), 0, shape, log, static_cast<const T*>(grad),
                                  static_cast<const T*>(output), static_cast<T*>(grad_input));
                  });
  });
}

}}}  // namespace tandem::v0::cuda
