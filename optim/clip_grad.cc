#include <tandem/optim/clip_grad.h>

#include <cmath>

#include <tandem/autograd/node.h>
#include <tandem/optim/clip_grad_kernels.h>

namespace tandem::inline v0::optim {

namespace {

constexpr double kSmall = 1e-6;  // PyTorch's guard against a norm of 0

/// Calls f with a pointer to the values: float32 or float64.
template <class F>
auto with_values(const Tensor& gradient, F f) {
  return gradient.dtype() == kFloat32 ? f(gradient.data<float>()) : f(gradient.data<double>());
}

}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  TANDEM_CHECK(ValueError, max_norm >= 0, "clip_grad_norm_: max_norm is ", max_norm, ", expected >= 0");
  TANDEM_CHECK(ValueError, norm_type > 0, "clip_grad_norm_: norm_type is ", norm_type, ", expected > 0");
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.requires_grad() ? parameter.grad() : Tensor();
    if (!gradient.defined()) continue;
    TANDEM_CHECK(DTypeError, gradient.dtype() == kFloat32 || gradient.dtype() == kFloat64,
                 "clip_grad_norm_: a gradient is ", gradient.dtype(), ", expected float32 or float64");
    TANDEM_CHECK(DeviceError, gradient.device().is_cpu(), "clip_grad_norm_: a gradient is on ", gradient.device(),
                 "; there is no kernel for it");
    TANDEM_CHECK(
        StateError, gradient.is_contiguous() && !gradient.requires_grad(),
        "clip_grad_norm_: a gradient was recorded by a backward with create_graph and cannot be changed in place");
    gradients.push_back(gradient);
  }

  const bool largest = std::isinf(norm_type);
  double sum = 0;
  for (const Tensor& gradient : gradients) {
    const double part = with_values(gradient, [&](const auto* values) {
      return cpu::norm_sum({gradient.device()}, gradient.num_elements(), values, norm_type);
    });
    sum = !largest ? sum + part : part > sum || std::isnan(part) ? part : sum;
  }
  const double norm = largest || norm_type == 1 ? sum : norm_type == 2 ? std::sqrt(sum) : std::pow(sum, 1 / norm_type);
  TANDEM_CHECK(StateError, !error_if_nonfinite || std::isfinite(norm), "clip_grad_norm_: the norm of the gradients is ",
               norm);

  const double factor = max_norm / (norm + kSmall);
  if (factor >= 1) return norm;  // false for NaN
  for (const Tensor& gradient : gradients) {
    with_values(gradient,
                [&](auto* values) { cpu::scale({gradient.device()}, gradient.num_elements(), factor, values); });
    autograd::end_in_place("clip_grad_norm_", gradient);
  }
  return norm;
}

}  // namespace tandem::inline v0::optim
