// What the kernels of activation functions compute of single elements, for both kinds of devices.  Private to the kernels of ops/.
#pragma once

#include <tandem/ops/elementwise/activation_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// The function itself, of x.
template <class C, ActivationOp op>
struct Activation {
  TANDEM_HOST_DEVICE TANDEM_INLINED C operator()(C x) const {
    if constexpr (op == ActivationOp::kGeluErf) return gelu_erf(x);
    if constexpr (op == ActivationOp::kGeluTanh) return gelu_tanh(x);
    if constexpr (op == ActivationOp::kSilu) return silu_element(x);
    if constexpr (op == ActivationOp::kTanh) return tanh_element(x);
    if constexpr (op == ActivationOp::kSigmoid) return sigmoid_element(x);
  }
};

/// g times the derivative, by the input x of gelu and silu, by the output of tanh and sigmoid.
template <class C, ActivationOp op>
struct ActivationBackward {
  TANDEM_HOST_DEVICE TANDEM_INLINED C operator()(C g, C saved) const {
    if constexpr (op == ActivationOp::kGeluErf) return g * gelu_erf_derivative(saved);
    if constexpr (op == ActivationOp::kGeluTanh) return g * gelu_tanh_derivative(saved);
    if constexpr (op == ActivationOp::kSilu) return g * silu_derivative(saved);
    if constexpr (op == ActivationOp::kTanh) return g * ((C{1} - saved) * (C{1} + saved));
    if constexpr (op == ActivationOp::kSigmoid) return g * (saved * (C{1} - saved));
  }
};

/// Calls run(f) with F<C, op>.
template <template <class, ActivationOp> class F, class C, class Run>
void visit(ActivationOp op, const Run& run) {
  switch (op) {
    case ActivationOp::kGeluErf: return run(F<C, ActivationOp::kGeluErf>{});
    case ActivationOp::kGeluTanh: return run(F<C, ActivationOp::kGeluTanh>{});
    case ActivationOp::kSilu: return run(F<C, ActivationOp::kSilu>{});
    case ActivationOp::kTanh: return run(F<C, ActivationOp::kTanh>{});
    case ActivationOp::kSigmoid: return run(F<C, ActivationOp::kSigmoid>{});
  }
}

}}}  // namespace tandem::v0::functions
