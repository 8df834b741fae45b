// CPU kernels of activation functions.
#include <tandem/ops/activation_kernels.h>
#include <tandem/ops/elementwise_map.h>

namespace tandem::inline v0::cpu {

void activation(const KernelContext&, ActivationOp op, DType dtype, const Loop<2>& loop, const void* input, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    switch (op) {
      case ActivationOp::kGeluErf:
        return map_unary<T>(loop, input, out, [](C x) TANDEM_INLINED { return gelu_erf(x); });
      case ActivationOp::kGeluTanh:
        return map_unary<T>(loop, input, out, [](C x) TANDEM_INLINED { return gelu_tanh(x); });
      case ActivationOp::kSilu:
        return map_unary<T>(loop, input, out, [](C x) TANDEM_INLINED { return silu_element(x); });
      case ActivationOp::kTanh:
        return map_unary<T>(loop, input, out, [](C x) TANDEM_INLINED { return tanh_element(x); });
      case ActivationOp::kSigmoid:
        return map_unary<T>(loop, input, out, [](C x) TANDEM_INLINED { return sigmoid_element(x); });
    }
  });
}

void activation_backward(const KernelContext&, ActivationOp op, DType dtype, const Loop<3>& loop, const void* grad,
                         const void* saved, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const auto run = [&](auto f) { map_binary<T, T>(loop, grad, saved, out, f); };
    switch (op) {
      case ActivationOp::kGeluErf: return run([](C g, C x) TANDEM_INLINED { return g * gelu_erf_derivative(x); });
      case ActivationOp::kGeluTanh: return run([](C g, C x) TANDEM_INLINED { return g * gelu_tanh_derivative(x); });
      case ActivationOp::kSilu: return run([](C g, C x) TANDEM_INLINED { return g * silu_derivative(x); });
      case ActivationOp::kTanh: return run([](C g, C y) TANDEM_INLINED { return g * ((C{1} - y) * (C{1} + y)); });
      case ActivationOp::kSigmoid: return run([](C g, C y) TANDEM_INLINED { return g * (y * (C{1} - y)); });
    }
  });
}

}  // namespace tandem::inline v0::cpu
