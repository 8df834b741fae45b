// Parameters with given gradients on the tested device.
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing {

template <class T>
Tensor parameter(const std::vector<T>& values, const Shape& shape) {
  Tensor result = from_vector<T>(values, shape, {dtype_of<T>(), test_device()});
  result.requires_grad_();
  return result;
}

/// Sets the parameter's gradient, as a backward would.
inline void set_gradient(const Tensor& parameter, const Tensor& gradient) {
  auto& leaf = autograd::leaf(parameter);
  primitives::copy(gradient, leaf.slot());
  leaf.mark_filled();
}

}  // namespace tandem::testing
