#include <tandem/nn/activation.h>
#include <tandem/tests/nn/layer_cases.h>

namespace tandem::testing {

void add_activation_layers(LayerCases cases) {
  cases.add("relu", [] { return nn::ReLU(); });
  cases.add("relu6", [] { return nn::ReLU6(); });
  cases.add("gelu", [] { return nn::GELU(); });
  cases.add("gelu_tanh", [] { return nn::GELU(GeluApproximation::kTanh); });
  cases.add("silu", [] { return nn::SiLU(); });
  cases.add("tanh", [] { return nn::Tanh(); });
  cases.add("sigmoid", [] { return nn::Sigmoid(); });
  cases.add("log_sigmoid", [] { return nn::LogSigmoid(); });
  cases.add("selu", [] { return nn::SELU(); });
  cases.add("mish", [] { return nn::Mish(); });
  cases.add("softsign", [] { return nn::Softsign(); });
  cases.add("hardswish", [] { return nn::Hardswish(); });
  cases.add("hardsigmoid", [] { return nn::Hardsigmoid(); });
  cases.add("hardtanh", [] { return nn::Hardtanh(); });
  cases.add("hardtanh_limits", [] { return nn::Hardtanh(-0.5, 2); });
  cases.add("leaky_relu", [] { return nn::LeakyReLU(); });
  cases.add("leaky_relu_slope", [] { return nn::LeakyReLU(0.2); });
  cases.add("elu", [] { return nn::ELU(); });
  cases.add("elu_alpha", [] { return nn::ELU(0.5); });
  cases.add("celu", [] { return nn::CELU(0.5); });
  cases.add("softplus", [] { return nn::Softplus(); });
  cases.add("softplus_options", [] { return nn::Softplus(2, 1); });
  cases.add("glu", [] { return nn::GLU(); });
  cases.add("glu_dim", [] { return nn::GLU(1); });
  cases.add("softmax", [] { return nn::Softmax(1); });
  cases.add("softmin", [] { return nn::Softmin(1); });
  cases.add("log_softmax", [] { return nn::LogSoftmax(-1); });
  cases.add("prelu", [] { return nn::PReLU(); });
  cases.add("prelu_channels", [] { return nn::PReLU(4, 0.1); });
}

}  // namespace tandem::testing
