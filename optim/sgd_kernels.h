// The kernel of SGD.  Private to optim/.
#pragma once

#include <cstdint>

#include <tandem/tensor/kernel_context.h>

namespace tandem::inline v0::optim::cpu {

/// What a step needs to know besides the tensors.
struct SgdStep {
  double lr;
  double momentum;
  double dampening;
  double weight_decay;
  bool nesterov;
  bool first;  ///< the momentum buffer holds nothing yet
};

/// One step for the n values of a parameter.  `buffer` is null exactly if momentum is 0.  T: float, double.
template <class T>
void sgd(const KernelContext& context, int64_t n, const T* gradient, const SgdStep& step, T* parameter, T* buffer);

}  // namespace tandem::inline v0::optim::cpu
