// Parameters with given gradients.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/small_net.h>

namespace tandem::distributed {

/// |got - expected| <= tolerance for each element.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

class HookedParameters {
 public:
  explicit HookedParameters(std::vector<Shape> shapes, DType dtype = kFloat32, Device device = {}) : dtype_(dtype) {
    for (const Shape& shape : shapes) parameters_.push_back(ones(shape, {dtype, device}).requires_grad_());
  }

  const Tensor& operator[](size_t i) const { return parameters_[i]; }
  NamedTensors named() const {
    NamedTensors all;
    for (size_t i = 0; i < parameters_.size(); ++i) all.emplace_back("net.p" + std::to_string(i), parameters_[i]);
    return all;
  }

  /// The gradient of parameter i in backward(rank, step).
  Tensor gradient(size_t i, int rank, int step) const {
    const auto seed =
        static_cast<uint64_t>(1 + i + 100 * static_cast<size_t>(rank) + 10000 * static_cast<size_t>(step));
    return cast(values(parameters_[i].shape(), seed));
  }
  /// Runs backward; the parameters then hold the averaged gradients of this pass only.
  void backward(const std::vector<Tensor>& gradients) const {
    Tensor loss;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Tensor parameter = parameters_[i];
      parameter.zero_grad();
      const Tensor term = mul(parameter, gradients[i].to(parameter.device())).sum();
      loss = loss.defined() ? add(loss, term) : term;
    }
    loss.backward();
  }
  void backward(int rank, int step) const {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < parameters_.size(); ++i) gradients.push_back(gradient(i, rank, step));
    backward(gradients);
  }
  /// The exact mean, in float64.
  std::vector<double> mean(size_t i, int world, int step) const {
    std::vector<double> sum(static_cast<size_t>(parameters_[i].numel()));
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<double> one = values_of(gradient(i, rank, step));
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += one[j] / world;
    }
    return sum;
  }
  static std::vector<double> values_of(const Tensor& tensor) {
    return tensor.dtype() == kFloat64 ? tensor.to_vector<double>() : tensor.to(kFloat64).to_vector<double>();
  }

 private:
  Tensor cast(const Tensor& tensor) const { return dtype_ == kFloat64 ? tensor : tensor.to(dtype_); }

  DType dtype_;
  std::vector<Tensor> parameters_;
};

/// Parameters in separate modules, hence in many buckets.
inline NamedTensors many_modules(const HookedParameters& p) {
  NamedTensors named = p.named();
  for (size_t i = 0; i < named.size(); ++i) named[i].first = str("layer", i, ".weight");
  return named;
}

}  // namespace tandem::distributed
