// Parameters with given gradients, for tests.
#pragma once

#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem::testing {

template <class T>
Tensor parameter(const std::vector<T>& values, const Shape& shape) {
  Tensor result = from_vector<T>(values, shape);
  result.set_requires_grad();
  return result;
}

/// Makes `gradient` what a backward left for the parameter.
inline void set_gradient(const Tensor& parameter, const Tensor& gradient) {
  auto& leaf = autograd::leaf(parameter);
  chores::copy(gradient, leaf.slot());
  leaf.mark_filled();
}

}  // namespace tandem::testing
