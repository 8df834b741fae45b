#include <type_traits>

#include <tandem/ops/loss/loss_kernels.h>
#include <tandem/ops/softmax/row_math_cuda.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Label 0 in place of an invalid label, which check_indices has reported.
__device__ int64_t valid_label(int64_t label, int64_t classes) { return label >= 0 && label < classes ? label : 0; }

template <class T, int kPack>
__global__ void cross_entropy_kernel(int64_t n, int64_t classes, const T* logits, const int64_t* labels,
                                     int64_t ignore_index, Accumulator<T>* shifts, double* losses) {
  using C = Accumulator<T>;
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    if (labels[i] == ignore_index) {  // for the whole block
      if (threadIdx.x == 0) losses[i] = 0;
      continue;
    }
    const T* x = logits + i * classes;
    const RowSum<C> sum = sum_of_exponentials<kPack>(x, classes, 1);
    if (threadIdx.x != 0) continue;
    const C logarithm = log_of(sum.sum);
    shifts[2 * i] = sum.max;
    shifts[2 * i + 1] = logarithm;
    const C label_logit = static_cast<C>(x[valid_label(labels[i], classes)]);
    losses[i] = static_cast<double>(logarithm) + static_cast<double>(sum.max - label_logit);
  }
}

template <class T>
__global__ void mean_kernel(int64_t n, const int64_t* labels, int64_t ignore_index, const double* losses,
                            Accumulator<T>* shifts, T* out) {
  double sum = 0, count = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    sum += losses[i];
    count += labels[i] == ignore_index ? 0 : 1;
  }
  sum = block_reduce(sum, 0.0, Plus());
  count = block_reduce(count, 0.0, Plus());
  if (threadIdx.x != 0) return;
  shifts[2 * n] = static_cast<Accumulator<T>>(count);
  *out = static_cast<T>(sum / count);
}

template <class T, int kPack>
__global__ void cross_entropy_backward_kernel(int64_t n, int64_t classes, const T* logits, const int64_t* labels,
                                              int64_t ignore_index, const Accumulator<T>* shifts,
                                              const Accumulator<T>* grad, T* grad_logits) {
  using C = Accumulator<T>;
  const C scale = *grad / shifts[2 * n];
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const bool is_ignored = labels[i] == ignore_index;
    const C max = is_ignored ? C{0} : shifts[2 * i], logarithm = is_ignored ? C{0} : shifts[2 * i + 1];
    const int64_t label = valid_label(labels[i], classes);
    for (int64_t begin = threadIdx.x * kPack; begin < classes; begin += blockDim.x * kPack) {
      Pack<T, kPack> results = {};
      if (!is_ignored) {
        const auto x = load_pack<kPack>(logits + i * classes + begin, kPack);
#pragma unroll
        for (int v = 0; v < kPack; ++v) {
          const C probability = exp_for<T>((static_cast<C>(x.values[v]) - max) - logarithm);
          results.values[v] = static_cast<T>((probability - (begin + v == label ? C{1} : C{0})) * scale);
        }
      }
      store_pack(grad_logits + i * classes + begin, results, kPack);
    }
  }
}

}  // namespace

void cross_entropy_rows(const KernelContext& context, DType dtype, int64_t n, int64_t classes, const void* logits,
                        const int64_t* labels, int64_t ignore_index, void* shifts, double* losses) {
  if (n == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_pack<T>(classes, {logits}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      launch_kernel(context, cross_entropy_kernel<T, kPack>, blocks_for(n, 1), threads_for_row(classes / kPack), 0, n,
                    classes, static_cast<const T*>(logits), labels, ignore_index, static_cast<Accumulator<T>*>(shifts),
                    losses);
    });
  });
}

void mean_of_losses(const KernelContext& context, DType dtype, int64_t n, const int64_t* labels, int64_t ignore_index,
                    const double* losses, void* shifts, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, mean_kernel<T>, 1, threads_for_row(n), 0, n, labels, ignore_index, losses,
                  static_cast<Accumulator<T>*>(shifts), static_cast<T*>(out));
  });
}

void cross_entropy_backward(const KernelContext& context, DType dtype, int64_t n, int64_t classes, const void* logits,
                            const int64_t* labels, int64_t ignore_index, const void* shifts, const void* grad,
                            void* grad_logits) {
  if (n == 0 || classes == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_pack<T>(classes, {logits, grad_logits}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      launch_kernel(context, cross_entropy_backward_kernel<T, kPack>, blocks_for(n, 1),
                    threads_for_row(classes / kPack), 0, n, classes, static_cast<const T*>(logits), labels,
                    ignore_index, static_cast<const Accumulator<T>*>(shifts), static_cast<const Accumulator<T>*>(grad),
                    static_cast<T*>(grad_logits));
    });
  });
}

}}}  // namespace tandem::v0::cuda
