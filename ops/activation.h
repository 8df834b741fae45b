// Activation functions.
//
// Common to all: any shape and strides; the result has the shape and dtype of the input, and its memory order if the
// input is dense. Half types are computed in float32 and rounded once. Undefined inputs throw StateError. Each gradient
// is one pass over memory and differentiable. At infinities and the largest finite values, results and gradients are
// the limits, in every dtype; PyTorch's gelu and silu give NaN at some of them, because they multiply infinity by 0.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Forms of gelu.
enum class GeluApproximation : int8_t {
  kNone,  ///< x Phi(x), where Phi is the standard normal distribution function: 0.5 x (1 + erf(x / sqrt(2)))
  kTanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

/// Gaussian error linear unit; 0 at -inf. Floating dtypes (else DTypeError). Saves its input. float32: within 6 units
/// in the last place of the exact value (tanh form: 3); tails below 2e-36 may be 0.
/// D. Hendrycks, K. Gimpel, "Gaussian error linear units (GELUs)", 2016.
TANDEM_OP Tensor gelu(Tensor input, GeluApproximation approximation = GeluApproximation::kNone);

/// input * sigmoid(input); 0 at -inf. Floating dtypes (else DTypeError). Saves its input. float32: within 3 units in
/// the last place; tails below 2e-36 have an absolute error of 1e-43.
TANDEM_OP Tensor silu(Tensor input);

/// Hyperbolic tangent; integers and bools are converted to float32 first. Saves its output. float32: within 3 units in
/// the last place.
TANDEM_OP Tensor tanh(Tensor input);

/// 1 / (1 + e^-input); integers and bools are converted to float32 first. Saves its output. float32: within 3 units in
/// the last place.
TANDEM_OP Tensor sigmoid(Tensor input);

}}  // namespace tandem::v0
