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

}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  TANDEM_CHECK(ValueError, max_norm >= 0, "clip_grad_norm_: max_norm is ", max_norm, ", expected >= 0");
  TANDEM_CHECK(ValueError, norm_type > 0, "clip_grad_norm_: norm_type is ", norm_type, ", expected > 0");
  const std::vector<Tensor> gradients = gradients_of("clip_grad_norm_", parameters);
  const std::vector<GradientBatch> batches = batches_of(gradients);
  const bool largest = std::isinf(norm_type);
  double sum = 0;
  for (const GradientBatch& batch : batches) {
    const double part = norm_sum(batch, norm_type);
    sum = !largest ? sum + part : part > sum || std::isnan(part) ? part : sum;
  }
  const double norm = largest || norm_type == 1 ? sum : norm_type == 2 ? std::sqrt(sum) : std::pow(sum, 1 / norm_type);
  TANDEM_CHECK(StateError, !error_if_nonfinite || std::isfinite(norm), "clip_grad_norm_: the norm of the gradients is ",
               norm);

  const double factor = max_norm / (norm + kEps);
  if (factor >= 1) return norm;  // false for NaN
  for (const GradientBatch& batch : batches)
    TANDEM_KERNEL(kernel_context(batch.device), scale, batch.dtype, batch.values, factor);
  for (const Tensor& gradient : gradients) autograd::end_in_place("clip_grad_norm_", gradient);
  return norm;
}

}}}  // namespace tandem::v0::optim
