// Parameters with given gradients, for tests; on the device that is tested.
#pragma once

#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing {

template <class T>
Tensor parameter(const std::vector<T>& values, const Shape& shape) {
  Tensor result = from_vector<T>(values, shape, {dtype_of<T>(), test_device()});
  result.set_requires_grad();
  return result;
}

/// Makes `gradient` what a backward left for the parameter.
inline void set_gradient(const Tensor& parameter, const Tensor& gradient) {
  auto& leaf = autograd::leaf(parameter);
  primitives::copy(gradient, leaf.slot());
  leaf.mark_filled();
}

}  // namespace tandem::testing
