// Compares gradients with central differences, in float64.
#pragma once

#include <functional>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// Options of gradcheck and gradgradcheck. A value matches if |analytic - numeric| <= atol + rtol |numeric|.
struct GradcheckOptions {
  double step = 1e-6;  ///< distance h in (f(x + h) - f(x - h)) / (2 h)
  double atol = 1e-6;  ///< absolute tolerance
  double rtol = 1e-4;  ///< relative tolerance
  uint64_t seed = 1;   ///< seed of the random cotangent
};

/// Checks d<w, f(inputs)>/d inputs against central differences for a random cotangent w, element by element. f maps the
/// inputs to one float64 tensor and must be deterministic; inputs that require grad are checked and must be float64.
/// Throws StateError with input, element and both values if they differ; NaN never matches.
TANDEM_API void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                          GradcheckOptions options = {});

/// Checks second derivatives: gradcheck of the function that maps (inputs, cotangent) to the gradients, computed with
/// create_graph. Also checks that gradients with and without create_graph are equal.
TANDEM_API void gradgradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                              GradcheckOptions options = {});

}}}  // namespace tandem::v0::autograd

namespace tandem { inline namespace v0 {

using autograd::gradcheck;
using autograd::gradgradcheck;

}}  // namespace tandem::v0
