// Activation functions as layers.
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/activation.h>

namespace tandem { inline namespace v0 { namespace nn {

/// max(x, 0), elementwise. The layers of this file accept any shape.
class TANDEM_API ReLU : public Layer {
 public:
  Tensor forward(const Tensor& input) override;
};

/// x Phi(x), where Phi is the distribution function of the standard normal distribution, or its tanh approximation.
class TANDEM_API GELU : public Layer {
 public:
  /// The form of the function.
  explicit GELU(GeluApproximation approximation = GeluApproximation::kNone) : approximation_(approximation) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  GeluApproximation approximation_;
};

/// x sigmoid(x).
class TANDEM_API SiLU : public Layer {
 public:
  Tensor forward(const Tensor& input) override;
};

/// tanh(x).
class TANDEM_API Tanh : public Layer {
 public:
  Tensor forward(const Tensor& input) override;
};

/// 1 / (1 + e^-x).
class TANDEM_API Sigmoid : public Layer {
 public:
  Tensor forward(const Tensor& input) override;
};

}}}  // namespace tandem::v0::nn
