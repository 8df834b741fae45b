#include <tandem/optim/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/optim/clip_grad_kernels.h>
#include <tandem/optim/gradient_batches.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

double* data_of(const Tensor& numbers) { return numbers.data<double>(); }

/// The sum over the batches of one device, and its norm, each float64 [].
struct DeviceNorm {
  Tensor sum, norm;
};

DeviceNorm norm_of_device(const KernelContext& context, const std::vector<const GradientBatch*>& batches,
                          double norm_type, autograd::ShardGroup* group) {
  int64_t num_parts = 0;
  for (const GradientBatch* batch : batches) num_parts += TANDEM_KERNEL(context, num_norm_parts, batch->values);
  const TensorOptions options = {kFloat64, context.device};
  const Tensor parts = empty({num_parts}, options);
  const DeviceNorm result = {empty({}, options), empty({}, options)};
  double* part = data_of(parts);
  for (const GradientBatch* batch : batches) {
    TANDEM_KERNEL(context, norm_parts, batch->dtype, batch->values, norm_type, part);
    part += TANDEM_KERNEL(context, num_norm_parts, batch->values);
  }
  TANDEM_KERNEL(context, norm_of_parts, num_parts, data_of(parts), norm_type, data_of(result.sum),
                data_of(result.norm));
  if (group != nullptr) {
    group->all_reduce(result.sum, std::isinf(norm_type));
    TANDEM_KERNEL(context, norm_of_parts, 1, data_of(result.sum), norm_type, data_of(result.sum), data_of(result.norm));
  }
  return result;
}

/// Gradients whose norm is a sum over the ranks of a group; those of a null group are complete.
struct DividedGradients {
  autograd::ShardGroup* group;
  std::vector<GradientBatch> batches;
};

Tensor total_norm(const char* op, const std::vector<DividedGradients>& groups, double norm_type,
                  bool error_if_nonfinite) {
  std::vector<DeviceNorm> norms;  // all kernels are launched before the first wait
  for (const DividedGradients& gradients : groups) {
    std::vector<std::pair<Device, std::vector<const GradientBatch*>>> devices;
    for (const GradientBatch& batch : gradients.batches) {
      auto found = std::find_if(devices.begin(), devices.end(), [&](const auto& d) { return d.first == batch.device; });
      if (found == devices.end()) found = devices.insert(found, {batch.device, {}});
      found->second.push_back(&batch);
    }
    for (const auto& [device, own] : devices)
      norms.push_back(norm_of_device(kernel_context(device), own, norm_type, gradients.group));
  }
  Tensor norm;
  if (norms.size() == 1) {
    norm = norms[0].norm;
  } else {
    std::vector<double> sums;
    for (const DeviceNorm& one : norms) sums.push_back(one.sum.item<double>());
    norm = empty({}, {kFloat64});
    double sum = 0;
    cpu::norm_of_parts(kernel_context(Device()), static_cast<int64_t>(sums.size()), sums.data(), norm_type, &sum,
                       data_of(norm));
  }
  if (error_if_nonfinite) {
    const double value = norm.item<double>();
    TANDEM_CHECK(StateError, std::isfinite(value), op, ": the norm is ", value);
  }
  return norm;
}

void check_norm_type(const char* op, double norm_type) {
  TANDEM_CHECK(ValueError, norm_type > 0, op, ": norm_type is ", norm_type, ", expected > 0");
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type, bool error_if_nonfinite) {
  constexpr const char* kOp = "get_total_norm";
  check_norm_type(kOp, norm_type);
  for (const Tensor& tensor : tensors) {
    TANDEM_CHECK(DTypeError, is_floating_point(tensor.dtype()), kOp, ": a tensor is ", tensor.dtype(),
                 ", expected a floating-point dtype");
    TANDEM_CHECK(StateError, tensor.is_contiguous(), kOp, ": a tensor is not contiguous");
  }
  return total_norm(kOp, {{nullptr, batches_of(tensors)}}, norm_type, error_if_nonfinite);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  constexpr const char* kOp = "clip_grad_norm_";
  TANDEM_CHECK(ValueError, max_norm >= 0, kOp, ": max_norm is ", max_norm, ", expected >= 0");
  check_norm_type(kOp, norm_type);
  std::vector<Tensor> gradients;
  std::vector<DividedGradients> groups;
  for (const DividedParameters& own : by_group(parameters)) {
    const std::vector<Tensor> of_group = gradients_of(kOp, own.parameters);
    groups.push_back({own.group.get(), batches_of(of_group)});
    gradients.insert(gradients.end(), of_group.begin(), of_group.end());
  }
  const Tensor norm = total_norm(kOp, groups, norm_type, error_if_nonfinite);
  for (const DividedGradients& own : groups) {
    for (const GradientBatch& batch : own.batches) {
      const Tensor there =
          batch.device == norm.device() ? norm : full({}, norm.item<double>(), {kFloat64, batch.device});
      TANDEM_KERNEL(kernel_context(batch.device), clip_to_norm, batch.dtype, batch.values, max_norm, data_of(there));
    }
  }
  for (const Tensor& gradient : gradients) autograd::end_in_place(kOp, gradient);
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  constexpr const char* kOp = "clip_grad_value_";
  TANDEM_CHECK(ValueError, clip_value >= 0, kOp, ": clip_value is ", clip_value, ", expected >= 0");
  const std::vector<Tensor> gradients = gradients_of(kOp, parameters);
  for (const GradientBatch& batch : batches_of(gradients))
    TANDEM_KERNEL(kernel_context(batch.device), clip, batch.dtype, batch.values, clip_value);
  for (const Tensor& gradient : gradients) autograd::end_in_place(kOp, gradient);
}

}}}  // namespace tandem::v0::optim
