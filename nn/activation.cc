#include <tandem/nn/activation.h>

#include <tandem/ops/elementwise.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor ReLU::forward(const Tensor& input) { return relu(input); }

Tensor GELU::forward(const Tensor& input) { return gelu(input, approximation_); }

std::string GELU::extra_repr() const { return approximation_ == GeluApproximation::kTanh ? "tanh" : ""; }

Tensor SiLU::forward(const Tensor& input) { return silu(input); }

Tensor Tanh::forward(const Tensor& input) { return tanh(input); }

Tensor Sigmoid::forward(const Tensor& input) { return sigmoid(input); }

}}}  // namespace tandem::v0::nn
