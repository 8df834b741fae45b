// The check of anomaly mode. Private to autograd/.
#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// Whether a floating-point tensor contains NaN. Copies it to the CPU. Throws StateError while a cuda::Graph is
/// captured.
bool has_nan(const Tensor& tensor);

}}}  // namespace tandem::v0::autograd
