// Activation functions as structs (see elementwise_kernels.h), and their formulas for single elements. Private to ops/.
//
// All use exponentials of arguments that are not positive, which cannot overflow; the other half of the line follows by
// symmetry.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include <tandem/ops/activation.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/ops/math.h>

namespace tandem { inline namespace v0 {

/// Above this abs(x), the tails of gelu and of its derivative are 0 in float.
inline constexpr float kGeluEnd = 16.0f;

/// 2 sqrt(2 / pi) (a + 0.044715 a^3) / ln 2.
TANDEM_HOST_DEVICE TANDEM_INLINED inline FloatPair gelu_tanh_exponent(float a) {
  constexpr float kLinear = 0x1.26aec2p+1f, kLinearLow = 0x1.bce75ap-27f;  // the constants, each as a pair
  constexpr float kCubic = 0x1.a5a7dp-4f, kCubicLow = -0x1.151aaep-29f;
  const float q = a * a;
  const float q_low = __builtin_fmaf(a, a, -q);
  const float m = kCubic * q;
  const float m_low = __builtin_fmaf(kCubic, q, -m);
  const float sum = kLinear + m;
  const float m_of_sum = sum - kLinear;
  const float sum_error = (kLinear - (sum - m_of_sum)) + (m - m_of_sum);
  const float sum_low = sum_error + (m_low + __builtin_fmaf(kCubicLow, q, __builtin_fmaf(kCubic, q_low, kLinearLow)));
  const float w = a * sum;
  return {w, __builtin_fmaf(a, sum_low, __builtin_fmaf(a, sum, -w))};
}

/// x sigmoid(v) with v = 2 sqrt(2 / pi) (x + 0.044715 x^3), the same function as with tanh; e = exp(-|v|).
TANDEM_HOST_DEVICE TANDEM_INLINED inline float gelu_tanh(float x) {
  const float a = magnitude_up_to(x, kGeluEnd);
  const float e = exp2_of_minus(gelu_tanh_exponent(a));
  return nan_of(x, by_sign(x, -a * e, x) / (1.0f + e));
}

/// sigmoid(v) + x sigmoid(v) (1 - sigmoid(v)) dv/dx.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float gelu_tanh_derivative(float x) {
  constexpr float kLinear = 1.59576912f, kCubic = 0.214064488f;  // dv/dx = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
  const float a = magnitude_up_to(x, kGeluEnd);
  const float e = exp2_of_minus(gelu_tanh_exponent(a));
  const float d = 1.0f + e;
  const float slope = std::copysign(a * __builtin_fmaf(kCubic, a * a, kLinear), x);
  return nan_of(x, __builtin_fmaf(by_sign(x, e, 1.0f), d, e * slope) / (d * d));
}

inline constexpr FloatPair kNormalScale = {0x1.715476p-1f, 0x1.4ae0c0p-27f};  // 1 / (2 ln 2)

/// x Phi(x).
TANDEM_HOST_DEVICE TANDEM_INLINED inline float gelu_erf(float x) {
  const float a = magnitude_up_to(x, kGeluEnd);
  const float tail = normal_tail(a + 2.5f, a, kNormalScale).tail;
  return nan_of(x, by_sign(x, -a * tail, x * (1.0f - tail)));
}

/// Phi(x) + x phi(x).
TANDEM_HOST_DEVICE TANDEM_INLINED inline float gelu_erf_derivative(float x) {
  constexpr float kDensity = 0.398942280f;  // 1 / sqrt(2 pi)
  const float a = magnitude_up_to(x, kGeluEnd);
  const NormalTail normal = normal_tail(a + 2.5f, a, kNormalScale);
  const float lower_or_upper = by_sign(x, normal.tail, 1.0f - normal.tail);
  return nan_of(x, __builtin_fmaf(std::copysign(a * kDensity, x), normal.exponential, lower_or_upper));
}

/// Above this abs(x), e^-abs(x) is 0 in float.
inline constexpr float kSigmoidEnd = 128.0f;

/// Below this x, x e^x is 0 in float.
inline constexpr float kTailEnd = -110.0f;
/// `scale` e^-x for x >= kTailEnd (at least e^-80), where `scale` is 1 or, for x with a minus sign, 2^-32, so that the
/// exponential is finite.
struct ScaledExp {
  float value;
  float scale;
};
TANDEM_HOST_DEVICE TANDEM_INLINED inline ScaledExp exp_of_minus(float x) {
  const float y = -x;
  const auto [r, k] = exp_parts(y < -80.0f ? -80.0f : y);
  const uint32_t one = 0x3f800000u - (sign_mask(std::bit_cast<uint32_t>(x)) & (32u << 23));
  return {exp_polynomial(r) * std::bit_cast<float>((k << 23) + one), std::bit_cast<float>(one)};
}

TANDEM_HOST_DEVICE TANDEM_INLINED inline float silu_element(float x) {
  const float bounded = choose(x < kTailEnd, kTailEnd, x);
  const ScaledExp e = exp_of_minus(bounded);
  return bounded / (e.scale + e.value) * e.scale;
}

/// s + x s (1 - s), s = sigmoid(x).
TANDEM_HOST_DEVICE TANDEM_INLINED inline float silu_derivative(float x) {
  const float a = magnitude_up_to(x, kSigmoidEnd);
  const float e = exp_of_nonpositive(-a);
  const float d = 1.0f + e;
  return nan_of(x, __builtin_fmaf(by_sign(x, e, 1.0f), d, std::copysign(a, x) * e) / (d * d));
}

inline constexpr double kSigmoidEndDouble = 1024;  // as kSigmoidEnd
TANDEM_HOST_DEVICE inline double silu_element(double x) {
  return x < -kSigmoidEndDouble ? -0.0 : x * sigmoid_element(x);
}
TANDEM_HOST_DEVICE inline double silu_derivative(double x) {
  if (std::fabs(x) > kSigmoidEndDouble) return x < 0 ? 0 : 1;
  const double s = sigmoid_element(x);
  return s + x * s * sigmoid_element(-x);
}
inline constexpr double kGeluEndDouble = 64;  // as kGeluEnd
TANDEM_HOST_DEVICE inline double gelu_erf(double x) {
  return x < -kGeluEndDouble ? -0.0 : 0.5 * x * std::erfc(-x * M_SQRT1_2);
}
TANDEM_HOST_DEVICE inline double gelu_erf_derivative(double x) {
  constexpr double kDensity = 0.39894228040143267794;  // 1 / sqrt(2 pi)
  if (std::fabs(x) > kGeluEndDouble) return x < 0 ? 0 : 1;
  return 0.5 * std::erfc(-x * M_SQRT1_2) + x * kDensity * std::exp(-0.5 * x * x);
}
inline constexpr double kGeluSlope = 1.5957691216057307117, kGeluCubic = 0.044715;  // 2 sqrt(2 / pi)
TANDEM_HOST_DEVICE inline double gelu_tanh(double x) {
  return x < -kGeluEndDouble ? -0.0 : x * sigmoid_element(kGeluSlope * (x + kGeluCubic * x * x * x));
}
TANDEM_HOST_DEVICE inline double gelu_tanh_derivative(double x) {
  if (std::fabs(x) > kGeluEndDouble) return x < 0 ? 0 : 1;
  const double v = kGeluSlope * (x + kGeluCubic * x * x * x);
  const double s = sigmoid_element(v);
  return s + x * s * sigmoid_element(-v) * kGeluSlope * (1 + 3 * kGeluCubic * x * x);
}

/// Forms of the above for half types on GPUs: x sigmoid(v), v = a x + b x^3. Beyond `end`, the sigmoid is 0 or 1.
struct ApproximateSigmoid {
  float value;
  float rest;  ///< 1 - value
};
TANDEM_HOST_DEVICE inline ApproximateSigmoid approximate_sigmoid(float x, float a, float b, float end) {
  constexpr float kLog2E = 1.44269504f;
  const float lower = x < -end ? -end : x, bounded = lower > end ? end : lower;  // keeps NaN
  const float e = approximate_exp2(bounded * __builtin_fmaf(-kLog2E * b, bounded * bounded, -kLog2E * a));
  const float s = x < -end ? 0.0f : approximate_reciprocal(1.0f + e);
  return {s, e * s};
}
TANDEM_HOST_DEVICE inline float approximate_x_sigmoid(float x, float a, float b, float end) {
  return (x < -end ? -end : x) * approximate_sigmoid(x, a, b, end).value;
}
/// s + x s (1 - s) dv/dx.
TANDEM_HOST_DEVICE inline float approximate_x_sigmoid_derivative(float x, float a, float b, float end) {
  const ApproximateSigmoid sigmoid = approximate_sigmoid(x, a, b, end);
  const float lower = x < -end ? -end : x, bounded = lower > end ? end : lower;
  const float slope = bounded * __builtin_fmaf(3 * b, bounded * bounded, a);
  return __builtin_fmaf(slope, sigmoid.value * sigmoid.rest, sigmoid.value);
}
/// Limits of x for which exp(-v) is finite.
inline constexpr float kGeluHalfEnd = 10.0f, kSiluHalfEnd = 87.0f;
inline constexpr float kGeluSlopeFloat = static_cast<float>(kGeluSlope),
                       kGeluCubicFloat = static_cast<float>(kGeluSlope * kGeluCubic);

namespace functions {

struct GeluErf {
  TANDEM_FORMULA auto operator()(auto x) const { return gelu_erf(x); }
  TANDEM_FORMULA auto gradient(auto g, auto x) const { return g * gelu_erf_derivative(x); }
  /// (Phi + x phi)' = phi (2 - x^2).
  static Tensor second_factor(const Tensor& input) {
    const Tensor x = clamp(input, -kGeluEndDouble, kGeluEndDouble);
    const Tensor square = x * x;
    return exp(square * -0.5) * (2 - square) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  }
};

struct GeluTanh {
  TANDEM_FORMULA auto operator()(auto x) const { return gelu_tanh(x); }
  TANDEM_FORMULA auto gradient(auto g, auto x) const { return g * gelu_tanh_derivative(x); }
  TANDEM_FORMULA float for_half(float x) const {
    return approximate_x_sigmoid(x, kGeluSlopeFloat, kGeluCubicFloat, kGeluHalfEnd);
  }
  TANDEM_FORMULA float gradient_for_half(float g, float x) const {
    return g * approximate_x_sigmoid_derivative(x, kGeluSlopeFloat, kGeluCubicFloat, kGeluHalfEnd);
  }
  /// With s = sigmoid(v): s' = s (1 - s) v', where 1 - s = sigmoid(-v) is precise.
  static Tensor second_factor(const Tensor& input) {
    const Tensor x = clamp(input, -kGeluEndDouble, kGeluEndDouble);
    const Tensor square = x * x;
    const Tensor v = kGeluSlope * x * (1 + kGeluCubic * square);
    const Tensor s = sigmoid(v), rest = sigmoid(-v);
    const Tensor v1 = kGeluSlope * (1 + 3 * kGeluCubic * square);
    const Tensor v2 = 6 * kGeluCubic * kGeluSlope * x;
    return s * rest * (2 * v1 + x * (v2 + v1 * v1 * (rest - s)));
  }
};

struct Gelu : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "gelu";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  GeluApproximation approximation = GeluApproximation::kNone;

  template <class T, class Run>
  void visit(const Run& run) const {
    if (approximation == GeluApproximation::kNone) return run(GeluErf{});
    run(GeluTanh{});
  }
  Tensor second_factor(const Tensor& input) const {
    return approximation == GeluApproximation::kNone ? GeluErf::second_factor(input) : GeluTanh::second_factor(input);
  }
};

struct Silu : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "silu";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  TANDEM_FORMULA auto operator()(auto x) const { return silu_element(x); }
  TANDEM_FORMULA auto gradient(auto g, auto x) const { return g * silu_derivative(x); }
  TANDEM_FORMULA float for_half(float x) const { return approximate_x_sigmoid(x, 1, 0, kSiluHalfEnd); }
  TANDEM_FORMULA float gradient_for_half(float g, float x) const {
    return g * approximate_x_sigmoid_derivative(x, 1, 0, kSiluHalfEnd);
  }
  static Tensor second_factor(const Tensor& input) {
    const Tensor x = clamp(input, -kSigmoidEndDouble, kSigmoidEndDouble);
    const Tensor s = sigmoid(x), rest = sigmoid(-x);
    return s * rest * (2 + x * (rest - s));
  }
};

/// x if x > 0, else slope x.
struct LeakyRelu : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "leaky_relu";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  double negative_slope = 0;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    return gradient(x, x);
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    return choose(x > C{0}, g, static_cast<C>(negative_slope) * g);
  }
};

/// scale x if x > 0, else scale alpha (e^(input_scale x) - 1). The derivative at NaN is the derivative for x > 0, as in
/// PyTorch.
struct Elu : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "elu";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  double alpha = 1, scale = 1, input_scale = 1;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    const C z = static_cast<C>(input_scale) * x;
    return choose(x > C{0}, static_cast<C>(scale) * x, scaled_expm1(z, static_cast<C>(alpha * scale)));
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    const C slope = static_cast<C>(alpha * input_scale) * exp_element(static_cast<C>(input_scale) * x);
    return g * static_cast<C>(scale) * choose(x <= C{0}, slope, C{1});
  }
  Tensor second_factor(const Tensor& input) const {
    return exp(clamp(input * input_scale, {}, 0)) * le(input, 0) * (alpha * scale * input_scale * input_scale);
  }
};

/// log(1 + e^(beta x)) / beta; x if beta x > threshold.
struct Softplus : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "softplus";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  double beta = 1, threshold = 20;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    const C z = static_cast<C>(beta) * x;
    return choose(z > static_cast<C>(threshold), x, softplus_element(z) / static_cast<C>(beta));
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    const C z = static_cast<C>(beta) * x;
    return g * choose(z > static_cast<C>(threshold), C{1}, sigmoid_element(z));
  }
  Tensor second_factor(const Tensor& input) const {
    const Tensor z = input * beta;
    return sigmoid(z) * sigmoid(-z) * le(z, threshold) * beta;
  }
};

struct Hardswish : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "hardswish";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    const C shifted = x + C{3};
    return choose(shifted > C{6}, x, x * choose(shifted < C{0}, C{0}, shifted) / C{6});
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    return choose(x <= C{-3}, C{0}, choose(x < C{3}, g * (x / C{3} + C{0.5}), g));
  }
  static Tensor second_factor(const Tensor& input) { return (abs(input) < 3) * (1.0 / 3); }
};

#define TANDEM_ACTIVATION_FUNCTIONS(X) X(silu, Silu) X(hardswish, Hardswish)

}  // namespace functions

namespace ops {

/// The gradient of the input of gelu, also of a gelu that is fused with another operation. Recorded; layout of input.
Tensor gelu_backward(const Tensor& grad, const Tensor& input, GeluApproximation approximation);

}  // namespace ops

}}  // namespace tandem::v0
