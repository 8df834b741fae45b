// Roots, exponentials, logarithms, trigonometric functions, rounding, powers and clamp, element by element.
//
// Devices, shapes, promotion and memory order as in ops/elementwise.h. All gradients are differentiable. "Floating":
// integers and bools are converted to float32 first.
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

/// 1 / input. Floating. Saves its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor reciprocal(Tensor input);

/// input^2, as pow(input, 2).
TANDEM_OP Tensor square(Tensor input);

/// The absolute value. Any dtype except bool (DTypeError). The gradient at 0 is 0. Saves its input.
TANDEM_OP Tensor abs(Tensor input);

/// 1, 0 or -1 by the sign of input; 0 for NaN. Any dtype. The gradient is 0. Saves nothing.
TANDEM_OP Tensor sign(Tensor input);

/// input rounded down, up, toward zero, and to the nearest integer (halves to the even one). Integers are returned
/// unchanged; throws DTypeError for bool. The gradient is 0. Saves nothing.
TANDEM_OP Tensor floor(Tensor input);
TANDEM_OP Tensor ceil(Tensor input);   ///< rounded up
TANDEM_OP Tensor trunc(Tensor input);  ///< rounded toward 0
TANDEM_OP Tensor round(Tensor input);  ///< rounded to the nearest integer
/// input rounded to `decimals` places after the point, before it if negative: round(input * 10^decimals) / 10^decimals.
/// Floating dtypes unless decimals is 0 (DTypeError).
TANDEM_OP Tensor round(Tensor input, int64_t decimals);
/// input - trunc(input). Floating dtypes (else DTypeError). Saves nothing.
TANDEM_OP Tensor frac(Tensor input);

// docs/accuracy.md has the worst errors.

/// 2^input. Floating. Saves its output.
TANDEM_OP Tensor exp2(Tensor input);
/// e^input - 1, precise near 0. Floating. Saves its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor expm1(Tensor input);
/// The logarithms to base 2 and 10: -inf at 0, NaN below 0; powers of 2 have exact logarithms to base 2. Floating. Save
/// their input. Under autocast half types are raised to float32.
TANDEM_OP Tensor log2(Tensor input);
TANDEM_OP Tensor log10(Tensor input);  ///< to base 10
/// log(1 + input), precise near 0: -inf at -1, NaN below. Floating. Saves its input. Under autocast half types are
/// raised to float32.
TANDEM_OP Tensor log1p(Tensor input);

/// Trigonometric functions of an angle in radians, NaN at infinities. Floating. sin and cos save their input, tan saves
/// its output. Under autocast tan raises half types to float32.
TANDEM_OP Tensor sin(Tensor input);
TANDEM_OP Tensor cos(Tensor input);  ///< cosine
TANDEM_OP Tensor tan(Tensor input);  ///< tangent
/// Inverse trigonometric functions; asin and acos are NaN outside [-1, 1]. Floating. Save their input. Under autocast
/// asin and acos raise half types to float32.
TANDEM_OP Tensor asin(Tensor input);
TANDEM_OP Tensor acos(Tensor input);  ///< arc cosine
TANDEM_OP Tensor atan(Tensor input);  ///< arc tangent
/// The angle of the point (other, input), from -pi to pi. Floating. The gradient at the origin is 0. Saves its
/// operands.
TANDEM_OP Tensor atan2(Tensor input, Tensor other);
/// (e^input - e^-input) / 2 and (e^input + e^-input) / 2. Floating. Save their input. Under autocast half types are
/// raised to float32.
TANDEM_OP Tensor sinh(Tensor input);
TANDEM_OP Tensor cosh(Tensor input);  ///< hyperbolic cosine

/// The error function 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to input, and erfc = 1 - erf, precise for
/// large inputs. Floating. Save their input.
TANDEM_OP Tensor erf(Tensor input);
TANDEM_OP Tensor erfc(Tensor input);  ///< 1 - erf
/// The inverse of erf: infinite at -1 and 1, NaN outside. Floating. Saves its output. Under autocast half types are
/// raised to float32.
TANDEM_OP Tensor erfinv(Tensor input);

/// log(e^input + e^other) without overflow. Floating. Saves its operands.
TANDEM_OP Tensor logaddexp(Tensor input, Tensor other);
/// input * log(other); 0 if input is 0, NaN if other is NaN. Floating. Saves its operands.
TANDEM_OP Tensor xlogy(Tensor input, Tensor other);

/// input with NaN, infinity and -infinity replaced; by default by 0, the largest and the lowest number of the dtype.
/// Any dtype; integers are copied. The gradient is 0 where an element is replaced. Saves the masks.
TANDEM_OP Tensor nan_to_num(const Tensor& input, double nan = 0, std::optional<double> posinf = {},
                            std::optional<double> neginf = {});

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
/// The same for a number as the base, which is rounded to the dtype of the result (bfloat16: 10000 becomes 9984).
TANDEM_OP Tensor pow(Scalar input, Tensor exponent);
__attribute__((unavailable("pow: one of the two must be a Tensor"))) Tensor pow(Scalar input, Scalar exponent);

/// min(max(input, min), max): `max` if min > max; NaN for NaN. A missing bound does not limit; a bound outside the
/// range of an integer dtype counts as the end of the range. Any dtype except bool (DTypeError). Throws ValueError if
/// both bounds are missing or one is NaN. The gradient is passed where min < input < max, not at the bounds themselves,
/// as in PyTorch 2.15. Saves its input.
TANDEM_OP Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max = {});
TANDEM_OP Tensor clamp_min(Tensor input, Scalar min);  ///< clamp(input, min)
TANDEM_OP Tensor clamp_max(Tensor input, Scalar max);  ///< clamp(input, {}, max)

/// clamp with tensors as bounds, which broadcast with input [min optional if max is given, max optional]; NaN if an
/// operand is NaN. The gradient is passed to the operand whose value the result has: to max if min > max, to input if
/// it equals a bound. Saves masks.
TANDEM_OP Tensor clamp(Tensor input, Tensor min, Tensor max = {});

}}  // namespace tandem::v0
