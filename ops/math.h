// Roots, sine, powers and bounds, element by element.
//
// Devices, shapes, promotion and memory order as in ops/elementwise.h.  All gradients can be differentiated again.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Square root, NaN below 0; integers and bools are converted to float32 first.  The gradient at 0 is infinite.  Saves its
/// output.
TANDEM_OP Tensor sqrt(Tensor input);

/// 1 / sqrt(input), infinite at 0, NaN below; integers and bools are converted to float32 first.  float32: within 2 units in
/// the last place.  Saves its output.  Under autocast half types are raised to float32.
TANDEM_OP Tensor rsqrt(Tensor input);

/// Sine of an angle in radians, NaN at infinities; integers and bools are converted to float32 first.  Saves its input.
TANDEM_OP Tensor sin(Tensor input);

/// input^exponent, as C's pow: the powers 0.5 and -0.5 are inf and 0 at -inf, 0 and inf at -0, unlike sqrt and rsqrt (PyTorch:
/// in float16 alone).  Any dtype but bool (DTypeError); integers stay integers, wrapping around, under an integer exponent, which
/// must then not be negative (ValueError).  The gradient, exponent input^(exponent - 1), is 0 where the exponent is 0.  Saves its
/// input.  Under autocast half types are raised to float32.
TANDEM_OP Tensor pow(Tensor input, Scalar exponent);

/// The same with an exponent for each element.  An integer to a negative power is 0, but for powers of 1 and -1.  The
/// exponent's gradient, output ln(input), is 0 where input is 0 and the exponent is not negative, and so is that gradient's own
/// (PyTorch's is NaN there).  Saves its operands, and its output if the exponent needs a gradient.
TANDEM_OP Tensor pow(Tensor input, Tensor exponent);

/// min(max(input, min), max): max where the bounds cross, NaN for NaN.  A bound that is missing does not bind; one outside an
/// integer dtype's range stands for its end.  Any dtype but bool (DTypeError).  Throws ValueError where both bounds are missing
/// or one is NaN.  The gradient flows where min < input < max, not at the bounds themselves, as in PyTorch
/// 2.15.  Saves its input.
TANDEM_OP Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max = {});

}}  // namespace tandem::v0
