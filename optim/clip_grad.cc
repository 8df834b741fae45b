#include <tandem/optim/clip_grad.h>

#include <cmath>

#include <tandem/autograd/node.h>
#include <tandem/optim/clip_grad_kernels.h>
#include <tandem/optim/gradient_batches.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

constexpr double kEps = 1e-6;  // as in PyTorch, avoids a division by 0

/// The sum of |x|^norm_type, or the largest |x|, over a batch. Synchronizes with the device.
double norm_sum(const GradientBatch& batch, double norm_type) {
  const KernelContext context = kernel_context(batch.device);
  if (context.device.is_cpu()) {
    double sum = 0;
    cpu::norm_sum(context, batch.dtype, batch.values, norm_type, nullptr, &sum);
    return sum;
  }
  const int64_t size = TANDEM_KERNEL(context, norm_workspace_size, batch.values);
  const Tensor memory = empty({size + 1}, {kFloat64, batch.device});
  double* sum = memory.data<double>();
  TANDEM_KERNEL(context, norm_sum, batch.dtype, batch.values, norm_type, sum + 1, sum);
  return make_view(memory.storage(), kFloat64, {}, {}, 0).item<double>();
}

double total_norm(const char* op, const std::vector<GradientBatch>& batches, double norm_type,
                  bool error_if_nonfinite) {
  const bool largest = std::isinf(norm_type);
  double sum = 0;
  for (const GradientBatch& batch : batches) {
    const double part = norm_sum(batch, norm_type);
    sum = !largest ? sum + part : part > sum || std::isnan(part) ? part : sum;
  }
  const double norm = largest || norm_type == 1 ? sum : norm_type == 2 ? std::sqrt(sum) : std::pow(sum, 1 / norm_type);
  TANDEM_CHECK(StateError, !error_if_nonfinite || std::isfinite(norm), op, ": the norm is ", norm);
  return norm;
}

void check_norm_type(const char* op, double norm_type) {
  TANDEM_CHECK(ValueError, norm_type > 0, op, ": norm_type is ", norm_type, ", expected > 0");
}

}  // namespace

double get_total_norm(const std::vector<Tensor>& tensors, double norm_type, bool error_if_nonfinite) {
  constexpr const char* kOp = "get_total_norm";
  check_norm_type(kOp, norm_type);
  for (const Tensor& tensor : tensors) {
    TANDEM_CHECK(DTypeError, is_floating_point(tensor.dtype()), kOp, ": a tensor is ", tensor.dtype(),
                 ", expected a floating-point dtype");
    TANDEM_CHECK(StateError, tensor.is_contiguous(), kOp, ": a tensor is not contiguous");
  }
  return total_norm(kOp, batches_of(tensors), norm_type, error_if_nonfinite);
}

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  constexpr const char* kOp = "clip_grad_norm_";
  TANDEM_CHECK(ValueError, max_norm >= 0, kOp, ": max_norm is ", max_norm, ", expected >= 0");
  check_norm_type(kOp, norm_type);
  const std::vector<Tensor> gradients = gradients_of(kOp, parameters);
  const std::vector<GradientBatch> batches = batches_of(gradients);
  const double norm = total_norm(kOp, batches, norm_type, error_if_nonfinite);
  const double factor = max_norm / (norm + kEps);
  if (factor >= 1) return norm;  // false for NaN
  for (const GradientBatch& batch : batches)
    TANDEM_KERNEL(kernel_context(batch.device), scale, batch.dtype, batch.values, factor);
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
