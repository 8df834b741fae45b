#include <tandem/nn/activation.h>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/softmax.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Tensor initial_weight(int64_t num_parameters, double init) {
  TANDEM_CHECK(ValueError, num_parameters >= 1, "PReLU: num_parameters is ", num_parameters, ", expected at least 1");
  return full({num_parameters}, init);
}

}  // namespace

Tensor activate(const Tensor& input, Activation activation) {
  switch (activation) {
    case Activation::kNone: return input;
    case Activation::kRelu: return relu(input);
    case Activation::kRelu6: return relu6(input);
    case Activation::kGelu: return gelu(input);
    case Activation::kGeluTanh: return gelu(input, GeluApproximation::kTanh);
  }
  throw ValueError("activate: not an Activation");
}

const char* activation_text(Activation activation) {
  constexpr const char* kTexts[] = {"", ", relu", ", relu6", ", gelu", ", gelu tanh"};
  return kTexts[static_cast<size_t>(activation)];
}

ReLU::ReLU() : FunctionLayer(relu) {}
ReLU6::ReLU6() : FunctionLayer(relu6) {}
SiLU::SiLU() : FunctionLayer(silu) {}
Tanh::Tanh() : FunctionLayer(tanh) {}
Sigmoid::Sigmoid() : FunctionLayer(sigmoid) {}
LogSigmoid::LogSigmoid() : FunctionLayer(logsigmoid) {}
SELU::SELU() : FunctionLayer(selu) {}
Mish::Mish() : FunctionLayer(mish) {}
Softsign::Softsign() : FunctionLayer(softsign) {}
Hardswish::Hardswish() : FunctionLayer(hardswish) {}
Hardsigmoid::Hardsigmoid() : FunctionLayer(hardsigmoid) {}
Hardtanh::Hardtanh(double min_val, double max_val)
    : FunctionLayer([=](const Tensor& x) { return hardtanh(x, min_val, max_val); }, str(min_val, ", ", max_val)) {}
LeakyReLU::LeakyReLU(double negative_slope)
    : FunctionLayer([=](const Tensor& x) { return leaky_relu(x, negative_slope); }, str(negative_slope)) {}
ELU::ELU(double alpha) : FunctionLayer([=](const Tensor& x) { return elu(x, alpha); }, str(alpha)) {}
CELU::CELU(double alpha) : FunctionLayer([=](const Tensor& x) { return celu(x, alpha); }, str(alpha)) {}
Softplus::Softplus(double beta, double threshold)
    : FunctionLayer([=](const Tensor& x) { return softplus(x, beta, threshold); }, str(beta, ", ", threshold)) {}
GLU::GLU(int64_t dim) : FunctionLayer([=](const Tensor& x) { return glu(x, dim); }, str(dim)) {}
Softmax::Softmax(int64_t dim) : FunctionLayer([=](const Tensor& x) { return softmax(x, dim); }, str(dim)) {}
LogSoftmax::LogSoftmax(int64_t dim) : FunctionLayer([=](const Tensor& x) { return log_softmax(x, dim); }, str(dim)) {}
GELU::GELU(GeluApproximation approximation)
    : FunctionLayer([=](const Tensor& x) { return gelu(x, approximation); },
                    approximation == GeluApproximation::kTanh ? "tanh" : "") {}
Softmin::Softmin(int64_t dim) : FunctionLayer([=](const Tensor& x) { return softmax(neg(x), dim); }, str(dim)) {}

PReLU::PReLU(int64_t num_parameters, double init)
    : weight(add_parameter("weight", initial_weight(num_parameters, init))) {}

Tensor PReLU::forward(const Tensor& input) { return prelu(input, weight); }

std::string PReLU::extra_repr() const { return str(weight.size(0)); }

}}}  // namespace tandem::v0::nn
