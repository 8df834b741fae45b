// GPU kernels of softmax: one block per row, contiguous or strided.
#include <tandem/ops/softmax/row_math_cuda.h>
#include <tandem/ops/softmax/softmax_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <class T>
__global__ void softmax_kernel(SoftmaxShape shape, bool log, const T* input, T* out) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < shape.outer * shape.inner; row += gridDim.x) {
    const int64_t start = row / shape.inner * shape.size * shape.inner + row % shape.inner;
    const T* x = input + start;
    T* y = out + start;
    const RowSum<C> sum =
        sum_of_exponentials<C>(shape.size, [&](int64_t i) { return static_cast<C>(x[i * shape.inner]); });
    const C logarithm = log_of(sum.sum), scale = C{1} / sum.sum;
    for (int64_t i = threadIdx.x; i < shape.size; i += blockDim.x) {
      const C shifted = static_cast<C>(x[i * shape.inner]) - sum.max;
      y[i * shape.inner] = static_cast<T>(log ? shifted - logarithm : exp_element(shifted) * scale);
    }
  }
}

template <class T>
__global__ void softmax_backward_kernel(SoftmaxShape shape, bool log, const T* grad, const T* output, T* grad_input) {
  using C = Accumulator<T>;
  for (int64_t row = blockIdx.x; row < shape.outer * shape.inner; row += gridDim.x) {
    const int64_t start = row / shape.inner * shape.size * shape.inner + row % shape.inner;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < shape.size; i += blockDim.x) {
      const int64_t at = start + i * shape.inner;
      sum += log ? static_cast<C>(grad[at]) : static_cast<C>(grad[at]) * static_cast<C>(output[at]);
    }
    sum = block_reduce(sum, C{0}, Plus());
    for (int64_t i = threadIdx.x; i < shape.size; i += blockDim.x) {
      const int64_t at = start + i * shape.inner;
      const C g = static_cast<C>(grad[at]), y = static_cast<C>(output[at]);
      grad_input[at] = static_cast<T>(log ? g - exp_element(y) * sum : y * (g - sum));
    }
  }
}

}  // namespace

void softmax(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* input, void* out) {
  if (shape.outer * shape.size * shape.inner == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, softmax_kernel<T>, blocks_for(shape.outer * shape.inner, 1), threads_for_row(shape.size), 0,
                  shape, log, static_cast<const T*>(input), static_cast<T*>(out));
  });
}

void softmax_backward(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* grad,
                      const void* output, void* grad_input) {
  if (shape.outer * shape.size * shape.inner == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, softmax_backward_kernel<T>, blocks_for(shape.outer * shape.inner, 1),
                  threads_for_row(shape.size), 0, shape, log, static_cast<const T*>(grad),
                  static_cast<const T*>(output), static_cast<T*>(grad_input));
  });
}

}}}  // namespace tandem::v0::cuda
