// GPU kernels of recurrent layers: one thread per unit.
#include <tandem/ops/recurrent/recurrent_kernels.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <RecurrentKind kind, class T>
__global__ void step_kernel(int64_t n, RecurrentStep step) {
  for (int64_t i = thread_index(); i < n; i += num_threads()) {
    recurrent_unit<kind, T>(step, i / step.hidden, i % step.hidden);
  }
}

template <RecurrentKind kind, class T>
__global__ void backward_step_kernel(int64_t n, RecurrentBackwardStep step) {
  for (int64_t i = thread_index(); i < n; i += num_threads()) {
    recurrent_unit_backward<kind, T>(step, i / step.hidden, i % step.hidden);
  }
}

}  // namespace

void recurrent_step(const KernelContext& context, const RecurrentStep& step) {
  visit_kind(step.kind, [&]<RecurrentKind kind>() {
    visit_floating_dtype(
        step.dtype, [&]<class T>() { launch_for_each(context, step.rows * step.hidden, step_kernel<kind, T>, step); });
  });
}

void recurrent_step_backward(const KernelContext& context, const RecurrentBackwardStep& step) {
  visit_kind(step.kind, [&]<RecurrentKind kind>() {
    visit_floating_dtype(step.dtype, [&]<class T>() {
      launch_for_each(context, step.rows * step.hidden, backward_step_kernel<kind, T>, step);
    });
  });
}

}}}  // namespace tandem::v0::cuda
