// Compares gradients with central differences, in float64.
#pragma once

#include <functional>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

struct GradcheckOptions {
  double step = 1e-6;
  double atol = 1e-6;
  double rtol = 1e-4;
  uint64_t seed = 1;  ///< of the random cotangent
};

/// Checks d<w, f(inputs)>/d inputs against central differences for a random cotangent w, element by element.  f maps the
/// inputs (float64, those that require grad are checked) to one tensor and must be deterministic.  Throws StateError with
/// the input, the element and both values where they differ; NaN differs from everything.
TANDEM_API void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                          GradcheckOptions options = {});

/// The same for second derivatives: gradcheck of the function that maps (inputs, cotangent) to the gradients, recorded
/// with create_graph; before, those gradients must equal the ones that are not recorded.
TANDEM_API void gradgradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                              GradcheckOptions options = {});

}}}  // namespace tandem::v0::autograd

namespace tandem { inline namespace v0 {

using autograd::gradcheck;
using autograd::gradgradcheck;

}}  // namespace tandem::v0
