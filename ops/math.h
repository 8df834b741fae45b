// Roots, sine, powers and clamp, element by element.
//
// Devices, shapes, promotion and memory order as in ops/elementwise.h. All gradients are differentiable.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Square root, NaN below 0; integers and bools are converted to float32 first. The gradient at 0 is infinite. Saves
/// its output.
TANDEM_OP Tensor sqrt(Tensor input);

/// 1 / sqrt(input), infinite at 0, NaN below; integers and bools are converted to float32 first. float32: within 2
/// units in the last place. Saves its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor rsqrt(Tensor input);

/// Sine of an angle in radians, NaN at infinities; integers and bools are converted to float32 first. Saves its input.
TANDEM_OP Tensor sin(Tensor input);

/// input^exponent, as C's pow: pow(x, 0.5) is inf at -inf and 0 at -0, pow(x, -0.5) is 0 at -inf and inf at -0, unlike
/// sqrt and rsqrt (PyTorch: only in float16). Any dtype except bool (DTypeError). An integer input with an integer
/// exponent gives integers that wrap around; the exponent must then not be negative (ValueError). The gradient,
/// exponent * input^(exponent - 1), is 0 if the exponent is 0. Saves its input. Under autocast half types are raised to
/// float32.
TANDEM_OP Tensor pow(Tensor input, Scalar exponent);

/// input^exponent with a tensor of exponents. An integer to a negative power is 0, except for the bases 1 and -1. The
/// gradient of the exponent, output * ln(input), and its own gradient are 0 where input is 0 and the exponent is not
/// negative (PyTorch: NaN). Saves its operands, and its output if the exponent needs a gradient.
TANDEM_OP Tensor pow(Tensor input, Tensor exponent);

/// min(max(input, min), max): `max` if min > max; NaN for NaN. A missing bound does not limit; a bound outside the
/// range of an integer dtype counts as the end of the range. Any dtype except bool (DTypeError). Throws ValueError if
/// both bounds are missing or one is NaN. The gradient is passed where min < input < max, not at the bounds themselves,
/// as in PyTorch 2.15. Saves its input.
TANDEM_OP Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max = {});

}}  // namespace tandem::v0
