// Kernels of gradient clipping.  Private to optim/.
#pragma once

#include <cstdint>

#include <tandem/tensor/kernel_context.h>

namespace tandem::inline v0::optim::cpu {

/// sum |x|^norm_type over n values, or max |x| for an infinite norm_type; NaN if one is NaN.  T: float, double.
template <class T>
double norm_sum(const KernelContext& context, int64_t n, const T* values, double norm_type);

/// values *= factor, in T.
template <class T>
void scale(const KernelContext& context, int64_t n, double factor, T* values);

}  // namespace tandem::inline v0::optim::cpu
