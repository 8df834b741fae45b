// Elementwise arithmetic, in-place forms, and copies.
//
// Common to all: tensors are on one device (DeviceError), shapes broadcast by NumPy's rule (ShapeError), dtypes promote
// as in PyTorch: bool < integers < floating, the wider one within a kind; a 0-dim tensor counts only if it is of a
// higher kind. A Scalar counts as a 0-dim tensor of float32, int64 or bool and is rounded to the common dtype. Half
// types are computed in float32 and rounded once; integers wrap around. Results share no memory with the operands. If
// the first operand of the result's shape is dense, the result has its memory order (channels-last stays
// channels-last), else it is row-major. Undefined operands throw StateError. All gradients are differentiable.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// a + alpha * b. Any dtype. Saves nothing.
TANDEM_OP Tensor add(Tensor a, Tensor b, Scalar alpha = 1);
TANDEM_OP Tensor add(Tensor a, Scalar b);
/// a - alpha * b. Throws DTypeError if a or b is bool; use eq(mask, 0) to invert a mask. Saves nothing.
TANDEM_OP Tensor sub(Tensor a, Tensor b, Scalar alpha = 1);
TANDEM_OP Tensor sub(Tensor a, Scalar b);
TANDEM_OP Tensor sub(Scalar a, const Tensor& b);
/// a * b. Any dtype. Saves each operand only if the other one needs a gradient.
TANDEM_OP Tensor mul(Tensor a, Tensor b);
TANDEM_OP Tensor mul(Tensor a, Scalar b);
/// a / b; integers and bools are converted to float32 first. Saves b, and a only if b needs a gradient.
TANDEM_OP Tensor div(Tensor a, Tensor b);
TANDEM_OP Tensor div(Tensor a, Scalar b);
TANDEM_OP Tensor div(Scalar a, const Tensor& b);

/// Rounding of quotients.
enum class RoundingMode : int8_t {
  kTrunc,  ///< toward zero
  kFloor,  ///< down
};

/// a / b rounded to an integer, in the common dtype. Throws DTypeError if that is bool. An integer divided by 0 is 0.
/// The gradients are 0. Saves nothing.
TANDEM_OP Tensor div(Tensor a, Tensor b, RoundingMode rounding_mode);
TANDEM_OP Tensor div(Tensor a, Scalar b, RoundingMode rounding_mode);
/// div(input, other, RoundingMode::kFloor).
TANDEM_OP Tensor floor_divide(Tensor input, Tensor other);
TANDEM_OP Tensor floor_divide(Tensor input, Scalar other);
/// The remainder input - other * trunc(input / other), which has the sign of input. Throws DTypeError for bools.
/// For integers the remainder of a division by 0 is 0. Saves its operands if `other` needs a gradient.
TANDEM_OP Tensor fmod(Tensor input, Tensor other);
TANDEM_OP Tensor fmod(Tensor input, Scalar other);
/// The remainder input - other * floor(input / other), which has the sign of other; otherwise as fmod.
TANDEM_OP Tensor remainder(Tensor input, Tensor other);
TANDEM_OP Tensor remainder(Tensor input, Scalar other);

/// The larger element; NaN if one is NaN. Any dtype. Equal elements each get half of the gradient. Saves its operands.
TANDEM_OP Tensor maximum(Tensor input, Tensor other);
/// The smaller element; otherwise as maximum.
TANDEM_OP Tensor minimum(Tensor input, Tensor other);
/// maximum(input, other).
TANDEM_API inline Tensor max(const Tensor& input, const Tensor& other) { return maximum(input, other); }
/// minimum(input, other).
TANDEM_API inline Tensor min(const Tensor& input, const Tensor& other) { return minimum(input, other); }

/// Combines the bits of integers or bools (else DTypeError). No gradient.
TANDEM_OP Tensor bitwise_and(Tensor input, Tensor other);
TANDEM_OP Tensor bitwise_and(Tensor input, Scalar other);
TANDEM_OP Tensor bitwise_or(Tensor input, Tensor other);   ///< input | other
TANDEM_OP Tensor bitwise_or(Tensor input, Scalar other);   ///< input | other
TANDEM_OP Tensor bitwise_xor(Tensor input, Tensor other);  ///< bits that differ
TANDEM_OP Tensor bitwise_xor(Tensor input, Scalar other);  ///< bits that differ
/// All bits inverted; true for false. Integers or bools (else DTypeError). No gradient.
TANDEM_OP Tensor bitwise_not(const Tensor& input);

/// input + weight * (end - input). Floating dtypes (else DTypeError). Saves weight, and input and end if weight needs a
/// gradient.
TANDEM_OP Tensor lerp(Tensor input, Tensor end, Scalar weight);
TANDEM_OP Tensor lerp(Tensor input, Tensor end, Tensor weight);
/// input + value * tensor1 * tensor2. Any dtype except bool (DTypeError). Throws DTypeError for a floating value with
/// integers. Saves each factor if the other one needs a gradient.
TANDEM_OP Tensor addcmul(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value = 1);
/// input + value * tensor1 / tensor2. Floating dtypes (else DTypeError). Saves tensor2, and tensor1 if tensor2 needs a
/// gradient.
TANDEM_OP Tensor addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value = 1);

/// -input. Throws DTypeError for bool. Saves nothing.
TANDEM_OP Tensor neg(Tensor input);
/// e^input; integers and bools are converted to float32 first. float32 on CPUs: an error of at most 0.6 units in the
/// last place (docs/accuracy.md). Saves its output. Under autocast half types are raised to float32.
TANDEM_OP Tensor exp(Tensor input);
/// Natural logarithm: -inf at 0, NaN below 0; integers and bools are converted to float32 first. float32 on CPUs: an
/// error of at most 0.54 units in the last place. Saves its input. Under autocast half types are raised to float32.
TANDEM_OP Tensor log(Tensor input);
/// max(input, 0), NaN for NaN. Any dtype except bool (DTypeError). The gradient at 0 is 0. Saves its output.
TANDEM_OP Tensor relu(Tensor input);

/// A row-major copy with its own memory. Saves nothing.
TANDEM_OP Tensor clone(const Tensor& input);
/// `input` itself if it is row-major, else a row-major copy. Saves nothing.
TANDEM_OP Tensor contiguous(const Tensor& input);

// The in-place forms are members of Tensor: add_ sub_ mul_ div_ and their operators, lerp_ fill_ zero_ copy_
// masked_fill_ addcmul_ addcdiv_, and functions of one tensor such as exp_, which save a copy of self where their
// function saves its input. `other` broadcasts to self's shape and is converted to self's dtype, which must be of
// the result's kind or a higher one (DTypeError: float into integers). fill_ accepts a number of any kind that
// self's integer dtype can represent (ValueError: 300 or -1 in uint8). They throw StateError if self is expanded; if
// self is a leaf that requires grad and grad mode is on; or if the change would be recorded and self is a view, or a
// tensor outside the graph that shares its memory. self is unchanged after a throw. mul_ and div_ save a copy of self
// only if `other` needs a gradient.

/// a + b.
TANDEM_API inline Tensor add(Scalar a, const Tensor& b) { return add(b, a); }
/// a * b.
TANDEM_API inline Tensor mul(Scalar a, const Tensor& b) { return mul(b, a); }

// Two numbers are a mistake. Not deleted: the errors for a deleted function do not contain a text.
__attribute__((unavailable("add: one of the two must be a Tensor"))) Tensor add(Scalar a, Scalar b);
__attribute__((unavailable("sub: one of the two must be a Tensor"))) Tensor sub(Scalar a, Scalar b);
__attribute__((unavailable("mul: one of the two must be a Tensor"))) Tensor mul(Scalar a, Scalar b);
__attribute__((unavailable("div: one of the two must be a Tensor"))) Tensor div(Scalar a, Scalar b);

/// a + b, as add.
TANDEM_API inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
TANDEM_API inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
TANDEM_API inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
/// a - b, as sub.
TANDEM_API inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
TANDEM_API inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
TANDEM_API inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
/// a * b, as mul.
TANDEM_API inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
TANDEM_API inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
TANDEM_API inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
/// a / b, as div.
TANDEM_API inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
TANDEM_API inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
TANDEM_API inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }
/// -a, as neg.
TANDEM_API inline Tensor operator-(const Tensor& a) { return neg(a); }
/// a & b, as bitwise_and.
TANDEM_API inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
TANDEM_API inline Tensor operator&(const Tensor& a, Scalar b) { return bitwise_and(a, b); }
TANDEM_API inline Tensor operator&(Scalar a, const Tensor& b) { return bitwise_and(b, a); }
/// a | b, as bitwise_or.
TANDEM_API inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
TANDEM_API inline Tensor operator|(const Tensor& a, Scalar b) { return bitwise_or(a, b); }
TANDEM_API inline Tensor operator|(Scalar a, const Tensor& b) { return bitwise_or(b, a); }
/// ~a, as bitwise_not.
TANDEM_API inline Tensor operator~(const Tensor& a) { return bitwise_not(a); }

}}  // namespace tandem::v0
