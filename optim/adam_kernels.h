// The kernel of Adam and AdamW.  Private to optim/.
#pragma once

#include <cstdint>

#include <tandem/tensor/kernel_context.h>

namespace tandem::inline v0::optim::cpu {

/// What a step needs to know besides the tensors.
struct AdamStep {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  bool decoupled;  ///< weight_decay shrinks the parameter instead of joining the gradient
  int64_t number;  ///< 1 in a parameter's first step
};

/// One step for the n values of a parameter.  `mean` and `square` are its moments, not read if step.number is 1.
/// T: float, double.
template <class T>
void adam(const KernelContext& context, int64_t n, const T* gradient, const AdamStep& step, T* parameter, T* mean,
          T* square);

}  // namespace tandem::inline v0::optim::cpu
