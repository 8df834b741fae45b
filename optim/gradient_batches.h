// Gradients as arguments of kernels. Private to optim/.
#pragma once

#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/base/error.h>
#include <tandem/optim/clip_grad_kernels.h>
#include <tandem/tensor/cuda_capture.h>
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

/// The parameter's shard, the elements that this rank updates; null if every rank updates the whole parameter.
inline autograd::LeafShard* shard_of(const Tensor& parameter) {
  const TensorImpl& impl = parameter.impl();  // of a parameter that is frozen too
  return impl.autograd && !impl.has_node ? static_cast<const autograd::Leaf&>(*impl.autograd).shard() : nullptr;
}

/// The gradient of a parameter; undefined if it has none or does not require one. Throws StateError for the gradient of
/// one rank that is not averaged, and in the capture of a cuda::Graph if ranks divide it; `op` begins the error text.
inline Tensor gradient_of(const char* op, const Tensor& parameter) {
  if (!parameter.requires_grad()) return {};
  const autograd::Leaf& leaf = autograd::leaf(parameter);
  if (leaf.shard() != nullptr) {
    TANDEM_CHECK(StateError, !leaf.filled(), op, ": the gradient of '", leaf.name,
                 "' is not averaged: it is of a backward within no_sync(), or of one that has not ended");
    TANDEM_CHECK(StateError, !tandem::cuda::is_capturing(parameter.device()), op, ": ranks divide '", leaf.name,
                 "', which cannot be captured in a cuda::Graph; construct DistributedDataParallel without shard");
  }
  return leaf.grad();
}

/// The gradients of the parameters that have one. Throws StateError for a gradient that cannot be changed in place;
/// `op` begins the error text.
inline std::vector<Tensor> gradients_of(const char* op, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = gradient_of(op, parameter);
    if (!gradient.defined()) continue;
    TANDEM_CHECK(StateError, gradient.is_contiguous() && !gradient.requires_grad(), op,
                 ": a gradient was recorded by a backward with create_graph and cannot be changed in place");
    gradients.push_back(gradient);
  }
  return gradients;
}

/// Parameters whose updates the ranks of one group divide; a null group if none do.
struct DividedParameters {
  RefPtr<autograd::ShardGroup> group;
  std::vector<Tensor> parameters;
};

/// The parameters that have a gradient, by group, in the order of their first parameters.
inline std::vector<DividedParameters> by_group(const std::vector<Tensor>& parameters) {
  std::vector<DividedParameters> result;
  for (const Tensor& parameter : parameters) {
    if (!parameter.requires_grad() || !parameter.grad().defined()) continue;
    const autograd::LeafShard* const shard = shard_of(parameter);
    const RefPtr<autograd::ShardGroup> group = shard != nullptr ? shard->group : nullptr;
    auto found = result.begin();
    while (found != result.end() && found->group != group) ++found;
    if (found == result.end()) found = result.insert(found, {group, {}});
    found->parameters.push_back(parameter);
  }
  return result;
}

}}}  // namespace tandem::v0::optim
