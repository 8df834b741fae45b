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

/// |x|^norm_type, |x| for an infinite norm_type.
struct NormTerm {
  double norm_type;
  TANDEM_HOST_DEVICE double operator()(double x) const {
    if (norm_type == 2) return x * x;
    if (norm_type == 1 || std::isinf(norm_type)) return std::abs(x);
    return std::pow(std::abs(x), norm_type);
  }
};

/// The value that scale and clip store. T is the dtype of the arithmetic.
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
/// The float64 values of workspace that norm_sum requires.
int64_t norm_workspace_size(const KernelContext& context, std::span<const Values> tensors);
/// *out = sum of NormTerm over all values, or the maximum for an infinite norm_type; NaN if a value is NaN.  Floating.
void norm_sum(const KernelContext& context, DType dtype, std::span<const Values> tensors, double norm_type,
              double* workspace, double* out);
/// values *= factor, in their dtype or, for 16-bit values, in float32.
void scale(const KernelContext& context, DType dtype, std::span<const Values> tensors, double factor);
/// values = max(-limit, min(value, limit)); NaN stays NaN.
void clip(const KernelContext& context, DType dtype, std::span<const Values> tensors, double limit);
)
// clang-format on

}}}  // namespace tandem::v0::optim
