#include <tandem/ops/elementwise/elementwise_map_cuda.h>
#include <tandem/ops/elementwise/math_functions.h>

namespace tandem { inline namespace v0 { namespace cuda {

void root(const KernelContext& context, RootOp op, DType dtype, const StridedLoop<2>& loop, const void* a, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    functions::visit<Compute<T>>(op, [&](auto f) { map_unary<T>(context, loop, a, out, f); });
  });
}

void pow(const KernelContext& context, DType dtype, const StridedLoop<2>& loop, Scalar exponent, const void* a,
         void* out) {
  visit_dtype(dtype, [&]<class T>() {
    functions::visit_power<T>(exponent, [&](auto f) { map_unary<T>(context, loop, a, out, f); });
  });
}

void pow(const KernelContext& context, DType dtype, const StridedLoop<3>& loop, const void* a, const void* b,
         void* out) {
  visit_dtype(dtype, [&]<class T>() { map_binary<T, T>(context, loop, a, b, out, functions::Power<T>{}); });
}

void clamp(const KernelContext& context, DType dtype, const StridedLoop<2>& loop, std::optional<Scalar> low,
           std::optional<Scalar> high, const void* a, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    map_unary<T>(context, loop, a, out, functions::Clamp<T>(functions::Bounds<T>(low, high)));
  });
}

void clamp_backward(const KernelContext& context, DType dtype, const StridedLoop<3>& loop, std::optional<Scalar> low,
                    std::optional<Scalar> high, const void* grad, const void* a, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    functions::visit_clamp_backward<T>(low, high, [&](auto f) { map_binary<T, T>(context, loop, grad, a, out, f); });
  });
}

}}}  // namespace tandem::v0::cuda
