// Activation functions.
//
// Common to all: any shape and strides; the result has the shape and dtype of the input, and its memory order if the
// input is dense. Half types are computed in float32 and rounded once. Undefined inputs throw StateError. Each gradient
// is one pass over memory and differentiable. At infinities and the largest finite values, results and gradients are
// the limits, in every dtype; PyTorch's gelu and silu give NaN at some of them, because they multiply infinity by 0.
// docs/accuracy.md has the worst errors.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Forms of gelu.
enum class GeluApproximation : int8_t {
  kNone,  ///< x Phi(x), where Phi is the standard normal distribution function: 0.5 x (1 + erf(x / sqrt(2)))
  kTanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

/// Gaussian error linear unit; 0 at -inf. Floating dtypes (else DTypeError). Saves its input. Tails of float32
/// below 2e-36 may be 0.
/// D. Hendrycks, K. Gimpel, "Gaussian error linear units (GELUs)", 2016.
TANDEM_OP Tensor gelu(Tensor input, GeluApproximation approximation = GeluApproximation::kNone);

/// input * sigmoid(input); 0 at -inf. Floating dtypes (else DTypeError). Saves its input.
TANDEM_OP Tensor silu(Tensor input);

/// Hyperbolic tangent; integers and bools are converted to float32 first. Saves its output.
TANDEM_OP Tensor tanh(Tensor input);

/// 1 / (1 + e^-input); integers and bools are converted to float32 first. Saves its output.
TANDEM_OP Tensor sigmoid(Tensor input);

// The following take floating dtypes (else DTypeError), and save their input unless noted. At infinities they are as in
// PyTorch: mish, hardswish and softsign are NaN where they multiply or divide infinities and zeros.

/// input if input > 0, else negative_slope * input.
/// A. L. Maas, A. Y. Hannun, A. Y. Ng, "Rectifier nonlinearities improve neural network acoustic models", 2013.
TANDEM_OP Tensor leaky_relu(Tensor input, double negative_slope = 0.01);

/// input if input > 0, else weight * input. `weight` has one element, or one per channel (dimension 1; else
/// ShapeError). Under autocast operands are cast to the half type. Saves its operands.
/// K. He et al., "Delving deep into rectifiers", 2015.
TANDEM_OP Tensor prelu(Tensor input, Tensor weight);

/// input if input > 0, else alpha (e^input - 1).
/// D. Clevert, T. Unterthiner, S. Hochreiter, "Fast and accurate deep network learning by exponential linear units",
/// 2015.
TANDEM_OP Tensor elu(Tensor input, double alpha = 1);

/// 1.0507 elu(input, 1.6733), with the constants in full precision.
/// G. Klambauer et al., "Self-normalizing neural networks", 2017.
TANDEM_OP Tensor selu(Tensor input);

/// input if input > 0, else alpha (e^(input / alpha) - 1). Throws ValueError if alpha is 0.
/// J. T. Barron, "Continuously differentiable exponential linear units", 2017.
TANDEM_OP Tensor celu(Tensor input, double alpha = 1);

/// log(1 + e^(beta input)) / beta; input if beta input > threshold. Under autocast half types are raised to float32.
TANDEM_OP Tensor softplus(Tensor input, double beta = 1, double threshold = 20);

/// log(sigmoid(input)) = -log(1 + e^-input).
TANDEM_OP Tensor logsigmoid(Tensor input);

/// input * tanh(softplus(input)). Saves intermediate results.
/// D. Misra, "Mish: a self regularized non-monotonic activation function", 2019.
TANDEM_OP Tensor mish(Tensor input);

/// input * relu6(input + 3) / 6. A. Howard et al., "Searching for MobileNetV3", 2019.
TANDEM_OP Tensor hardswish(Tensor input);

/// relu6(input + 3) / 6.
TANDEM_OP Tensor hardsigmoid(Tensor input);

/// clamp(input, min_val, max_val): any dtype except bool. The gradient at the bounds is 0, at NaN it is passed.
TANDEM_OP Tensor hardtanh(Tensor input, double min_val = -1, double max_val = 1);

/// clamp(input, 0, 6): any dtype except bool. The gradient at the bounds is 0, at NaN it is passed.
TANDEM_OP Tensor relu6(Tensor input);

/// input / (1 + abs(input)). Saves intermediate results.
TANDEM_OP Tensor softsign(Tensor input);

/// a * sigmoid(b) for the halves a and b of dimension dim. Throws ValueError unless its size is even. Saves a and
/// sigmoid(b). Y. N. Dauphin et al., "Language modeling with gated convolutional networks", 2016.
TANDEM_OP Tensor glu(Tensor input, int64_t dim = -1);

/// softmax((logits + g) / tau) over dimension dim, where g = -log(-log(u)) with u drawn by rand in float32.
/// With `hard` the result is 1 at the maximum and 0 elsewhere, with the gradient of the softmax. Under autocast
/// half types are raised to float32. Throws ValueError unless tau > 0.
/// E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax", 2017.
TANDEM_OP Tensor gumbel_softmax(Tensor logits, double tau = 1, bool hard = false, int64_t dim = -1,
                                Generator* generator = nullptr);

}}  // namespace tandem::v0
