#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_map_cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

void activation(const KernelContext& context, ActivationOp op, DType dtype, const StridedLoop<2>& loop,
                const void* input, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    functions::visit<functions::Activation, Compute<T>>(op,
                                                        [&](auto f) { map_unary<T>(context, loop, input, out, f); });
  });
}

void activation_backward(const KernelContext& context, ActivationOp op, DType dtype, const StridedLoop<3>& loop,
                         const void* grad, const void* saved, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    functions::visit<functions::ActivationBackward, Compute<T>>(
        op, [&](auto f) { map_binary<T, T>(context, loop, grad, saved, out, f); });
  });
}

}}}  // namespace tandem::v0::cuda
