// Gradients as arguments of kernels. Private to optim/.
#pragma once

#include <vector>

#include <tandem/base/error.h>
#include <tandem/optim/clip_grad_kernels.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Gradients of one device and dtype, for one kernel.
struct GradientBatch {
  Device device;
  DType dtype;
  std::vector<Values> values;
};

inline std::vector<GradientBatch> batches_of(const std::vector<Tensor>& gradients) {
  std::vector<GradientBatch> batches;
  for (const Tensor& gradient : gradients) {
    auto found = batches.begin();
    while (found != batches.end() && (found->device != gradient.device() || found->dtype != gradient.dtype())) ++found;
    if (found == batches.end()) found = batches.insert(found, {gradient.device(), gradient.dtype(), {}});
    found->values.push_back({gradient.numel(), gradient.data_ptr()});
  }
  return batches;
}

/// The gradients of the parameters that have one. Throws StateError for a gradient that cannot be changed in place;
/// `op` begins the error text.
inline std::vector<Tensor> gradients_of(const char* op, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.requires_grad() ? parameter.grad() : Tensor();
    if (!gradient.defined()) continue;
    TANDEM_CHECK(StateError, gradient.is_contiguous() && !gradient.requires_grad(), op,
                 ": a gradient was recorded by a backward with create_graph and cannot be changed in place");
    gradients.push_back(gradient);
  }
  return gradients;
}

}}}  // namespace tandem::v0::optim
