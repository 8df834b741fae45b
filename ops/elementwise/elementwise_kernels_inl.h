// Kernels of elementwise operations by the loops map_unary, map_binary and map_ternary of TANDEM_DEVICE_NAMESPACE, cpu
// or cuda; the *_cpu.cc and *_cuda.cu files instantiate them.
#pragma once

#include <tandem/ops/elementwise/elementwise_kernels.h>

namespace tandem { inline namespace v0 { namespace TANDEM_DEVICE_NAMESPACE {

template <class Op>
void unary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<2>& loop, const void* a,
           void* out) {
  visit_dtype_of<Op>(dtype,
                     [&]<class T>() { visit_formula<T>(op, [&](auto f) { map_unary<T>(context, loop, a, out, f); }); });
}

template <class Op>
void unary_gradient(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<3>& loop,
                    const void* grad, const void* saved, void* out) {
  if constexpr (kHasGradientKernel<Op>) {
    visit_floating_dtype(dtype, [&]<class T>() {
      visit_formula<T>(op,
                       [&](auto f) { map_binary<T, T>(context, loop, grad, saved, out, GradientOf<decltype(f)>{f}); });
    });
  }
}

template <class Op>
void binary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<3>& loop, Source a, Source b,
            void* out) {
  visit_dtype_of<Op>(dtype, [&]<class T>() {
    using Out = std::conditional_t<Op::kReturnsBool, bool, T>;
    visit_formula<T>(op, [&](auto f) { map_binary<T, Out>(context, loop, a, b, out, f); });
  });
}

template <class Op>
void ternary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<4>& loop, const void* a,
             const void* b, const void* c, void* out) {
  visit_dtype_of<Op>(
      dtype, [&]<class T>() { visit_formula<T>(op, [&](auto f) { map_ternary<T>(context, loop, a, b, c, out, f); }); });
}

/// Instantiates the kernels of functions::Op. `name` is not used.
#define TANDEM_UNARY_KERNEL(name, Op) \
  template void unary(const KernelContext&, const functions::Op&, DType, const StridedLoop<2>&, const void*, void*);
#define TANDEM_UNARY_KERNELS(name, Op)                                                                                \
  TANDEM_UNARY_KERNEL(name, Op)                                                                                       \
  template void unary_gradient(const KernelContext&, const functions::Op&, DType, const StridedLoop<3>&, const void*, \
                               const void*, void*);
#define TANDEM_BINARY_KERNELS(name, Op) \
  template void binary(const KernelContext&, const functions::Op&, DType, const StridedLoop<3>&, Source, Source, void*);
#define TANDEM_TERNARY_KERNELS(Op)                                                                             \
  template void ternary(const KernelContext&, const functions::Op&, DType, const StridedLoop<4>&, const void*, \
                        const void*, const void*, void*);

}}}  // namespace tandem::v0::TANDEM_DEVICE_NAMESPACE
