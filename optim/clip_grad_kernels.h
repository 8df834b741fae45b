// Kernels of gradient clipping. Private to optim/.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace optim {

/// n values of one tensor.
struct Values {
  int64_t n;
  void* data;
};

/// The norm for a sum of |x|^norm_type or, for an infinite norm_type, for the maximum of |x|.
TANDEM_HOST_DEVICE inline double norm_of(double sum, double norm_type) {
  if (norm_type == 2) return std::sqrt(sum);
  return norm_type == 1 || std::isinf(norm_type) ? sum : std::pow(sum, 1 / norm_type);
}

/// |x|^norm_type, |x| for an infinite norm_type.
struct NormTerm {
  double norm_type;
  TANDEM_HOST_DEVICE double operator()(double x) const {
    if (norm_type == 2) return x * x;
    if (norm_type == 1 || std::isinf(norm_type)) return std::abs(x);
    return std::pow(std::abs(x), norm_type);
  }
};

/// The factor that reduces `norm` to max_norm; gradients are scaled only if it is less than 1. 1e-6 avoids a division
/// by 0, as in PyTorch.
TANDEM_HOST_DEVICE inline double clip_factor(double max_norm, double norm) { return max_norm / (norm + 1e-6); }

/// The values that clip_to_norm (ScaleValue) and clip (ClipValue) store. T is the dtype of the arithmetic.
template <class T>
struct ScaleValue {
  T factor;
  TANDEM_HOST_DEVICE T operator()(T value) const { return value * factor; }
};
template <class T>
struct ClipValue {
  T limit;
  TANDEM_HOST_DEVICE T operator()(T value) const { return value > limit ? limit : value < -limit ? -limit : value; }
};

// clang-format off
TANDEM_KERNELS(
/// The number of parts in which norm_parts sums these tensors.
int64_t num_norm_parts(const KernelContext& context, std::span<const Values> tensors);
/// Sums of NormTerm over parts of the values, or the maxima for an infinite norm_type; NaN if a value is NaN. Floating
/// dtypes only.
void norm_parts(const KernelContext& context, DType dtype, std::span<const Values> tensors, double norm_type,
                double* parts);
/// *sum = the sum of n parts, or their maximum; *norm = the norm_type-th root of *sum.
void norm_of_parts(const KernelContext& context, int64_t n, const double* parts, double norm_type, double* sum,
                   double* norm);
/// values *= clip_factor(max_norm, *norm) if that is less than 1; computed in the dtype or, for 16-bit values, in
/// float32.
void clip_to_norm(const KernelContext& context, DType dtype, std::span<const Values> tensors, double max_norm,
                  const double* norm);
/// values = max(-limit, min(value, limit)); NaN stays NaN.
void clip(const KernelContext& context, DType dtype, std::span<const Values> tensors, double limit);
)
// clang-format on

}}}  // namespace tandem::v0::optim
