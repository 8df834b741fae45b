// Math functions of one tensor, powers and clamp as structs (see elementwise_kernels.h). Private to ops/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <type_traits>

#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/ops/math.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace functions {

struct Sqrt : UnaryOp<Saves::kOutput> {
  static constexpr const char* kName = "sqrt";
  TANDEM_FORMULA auto operator()(auto x) const { return std::sqrt(x); }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return div(grad, mul(output, 2)); }
};

struct Rsqrt : UnaryOp<Saves::kOutput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "rsqrt";
  TANDEM_FORMULA auto operator()(auto x) const { return 1 / std::sqrt(x); }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, mul(pow(output, 3), -0.5)); }
};

struct Reciprocal : UnaryOp<Saves::kOutput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "reciprocal";
  TANDEM_FORMULA auto operator()(auto x) const { return 1 / x; }
  TANDEM_FORMULA auto gradient(auto g, auto output) const { return -g * (output * output); }
  static Tensor second_factor(const Tensor& output) { return -2 * output; }
};

struct Exp2 : UnaryOp<Saves::kOutput> {
  static constexpr const char* kName = "exp2";
  TANDEM_FORMULA auto operator()(auto x) const { return exp2_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, mul(output, std::numbers::ln2)); }
};

struct Expm1 : UnaryOp<Saves::kOutput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "expm1";
  TANDEM_FORMULA auto operator()(auto x) const { return scaled_expm1(x, decltype(x){1}); }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, add(output, 1)); }
};

struct Log2 : UnaryOp<Saves::kInput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "log2";
  TANDEM_FORMULA auto operator()(auto x) const { return log2_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) { return div(grad, mul(input, std::numbers::ln2)); }
};

struct Log10 : UnaryOp<Saves::kInput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "log10";
  TANDEM_FORMULA auto operator()(auto x) const { return log10_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) { return div(grad, mul(input, std::numbers::ln10)); }
};

struct Log1p : UnaryOp<Saves::kInput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "log1p";
  TANDEM_FORMULA auto operator()(auto x) const { return log1p_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) { return div(grad, add(input, 1)); }
};

struct Erf : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "erf";
  TANDEM_FORMULA auto operator()(auto x) const { return erf_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) {
    return mul(grad, mul(exp(neg(mul(input, input))), 2 * std::numbers::inv_sqrtpi));
  }
};

struct Erfc : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "erfc";
  TANDEM_FORMULA auto operator()(auto x) const { return erfc_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) {
    return mul(grad, mul(exp(neg(mul(input, input))), -2 * std::numbers::inv_sqrtpi));
  }
};

/// sin(x), or cos(x) = sin(x + pi / 2).
template <bool is_cosine>
struct Sine : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = is_cosine ? "cos" : "sin";
  static constexpr float kFastLimit = kMaxFastAngle;
  static constexpr int kQuarterTurns = is_cosine ? 1 : 0;
  TANDEM_FORMULA float fast(float x) const { return fast_sine<kQuarterTurns>(x); }
  template <class C>
  TANDEM_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_same_v<C, float>) {
      if (std::fabs(x) <= kFastLimit) return fast(x);
    }
    return is_cosine ? std::cos(x) : std::sin(x);
  }
  static Tensor backward(const Tensor& grad, const Tensor& input) {
    return is_cosine ? mul(grad, neg(sin(input))) : mul(grad, cos(input));
  }
};
using Sin = Sine<false>;
using Cos = Sine<true>;

struct Tanh : UnaryOp<Saves::kOutput> {
  static constexpr const char* kName = "tanh";
  TANDEM_FORMULA auto operator()(auto x) const { return tanh_element(x); }
  TANDEM_FORMULA auto gradient(auto g, auto output) const { return g * ((1 - output) * (1 + output)); }
  static Tensor second_factor(const Tensor& output) { return -2 * output; }
};

struct Sigmoid : UnaryOp<Saves::kOutput> {
  static constexpr const char* kName = "sigmoid";
  TANDEM_FORMULA auto operator()(auto x) const { return sigmoid_element(x); }
  TANDEM_FORMULA auto gradient(auto g, auto output) const { return g * (output * (1 - output)); }
  static Tensor second_factor(const Tensor& output) { return 1 - 2 * output; }
};

#define TANDEM_MATH_FUNCTIONS(X) \
  X(sqrt, Sqrt)                  \
  X(rsqrt, Rsqrt)                \
  X(reciprocal, Reciprocal)      \
  X(exp2, Exp2)                  \
  X(expm1, Expm1)                \
  X(log2, Log2)                  \
  X(log10, Log10) X(log1p, Log1p) X(erf, Erf) X(erfc, Erfc) X(sin, Sin) X(cos, Cos) X(tanh, Tanh) X(sigmoid, Sigmoid)

// --- sign and rounding ---------------------------------------------------------------------------

struct Abs : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "abs";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return signed_value(x) < 0 ? -x : x;
    } else {
      return std::fabs(x);
    }
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    return g * (static_cast<C>(x > C{0}) - static_cast<C>(x < C{0}));
  }
};

/// A function with derivative 0.
struct StepFunction : UnaryOp<> {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  static Tensor backward(const Tensor& grad, const Tensor&) { return zeros_like(grad); }
};

struct Sign : StepFunction {
  static constexpr const char* kName = "sign";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kAny;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    const auto value = signed_value(x);
    return static_cast<C>(value > 0) - static_cast<C>(value < 0);
  }
};

enum class Rounding : int8_t { kFloor, kCeil, kTrunc, kNearest };

/// A floating number rounded to an integer; integers unchanged.
template <Rounding rounding>
struct Rounded : StepFunction {
  static constexpr const char* kName = rounding == Rounding::kFloor   ? "floor"
                                       : rounding == Rounding::kCeil  ? "ceil"
                                       : rounding == Rounding::kTrunc ? "trunc"
                                                                      : "round";
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return x;
    } else if constexpr (rounding == Rounding::kFloor) {
      return std::floor(x);
    } else if constexpr (rounding == Rounding::kCeil) {
      return std::ceil(x);
    } else if constexpr (rounding == Rounding::kTrunc) {
      return std::trunc(x);
    } else {
      return std::nearbyint(x);
    }
  }
};
using Floor = Rounded<Rounding::kFloor>;
using Ceil = Rounded<Rounding::kCeil>;
using Trunc = Rounded<Rounding::kTrunc>;
using Round = Rounded<Rounding::kNearest>;

#define TANDEM_STEP_FUNCTIONS(X) X(abs, Abs) X(sign, Sign) X(floor, Floor) X(ceil, Ceil) X(trunc, Trunc) X(round, Round)

// --- functions that share one kernel -------------------------------------------------------------

/// Functions that programs use rarely, by the C library.
struct RareFunction : UnaryOp<> {
  enum Kind : int8_t { kTan, kAsin, kAcos, kAtan, kSinh, kCosh, kErfinv };
  Kind kind;
  template <class C>
  TANDEM_HOST_DEVICE C operator()(C x) const {
    const LibraryType<C> y = x;
    switch (kind) {
      case kTan: return static_cast<C>(std::tan(y));
      case kAsin: return static_cast<C>(std::asin(y));
      case kAcos: return static_cast<C>(std::acos(y));
      case kAtan: return static_cast<C>(std::atan(y));
      case kSinh: return static_cast<C>(std::sinh(y));
      case kCosh: return static_cast<C>(std::cosh(y));
      case kErfinv: break;
    }
    return erfinv_element(x);
  }
};
template <RareFunction::Kind kind, Saves saves>
struct Rare : UnaryOp<saves, CastPolicy::kFloat32> {
  static RareFunction kernel() { return {{}, kind}; }
};

struct Tan : Rare<RareFunction::kTan, Saves::kOutput> {
  static constexpr const char* kName = "tan";
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, add(mul(output, output), 1)); }
};

struct Asin : Rare<RareFunction::kAsin, Saves::kInput> {
  static constexpr const char* kName = "asin";
  static Tensor backward(const Tensor& grad, const Tensor& input) {
    return mul(grad, rsqrt(sub(1, mul(input, input))));
  }
};

struct Acos : Rare<RareFunction::kAcos, Saves::kInput> {
  static constexpr const char* kName = "acos";
  static Tensor backward(const Tensor& grad, const Tensor& input) {
    return mul(grad, neg(rsqrt(sub(1, mul(input, input)))));
  }
};

struct Atan : Rare<RareFunction::kAtan, Saves::kInput> {
  static constexpr const char* kName = "atan";
  static constexpr CastPolicy kCastPolicy = CastPolicy::kWidest;
  static Tensor backward(const Tensor& grad, const Tensor& input) { return div(grad, add(mul(input, input), 1)); }
};

struct Sinh : Rare<RareFunction::kSinh, Saves::kInput> {
  static constexpr const char* kName = "sinh";
  static Tensor backward(const Tensor& grad, const Tensor& input) { return mul(grad, cosh(input)); }
};

struct Cosh : Rare<RareFunction::kCosh, Saves::kInput> {
  static constexpr const char* kName = "cosh";
  static Tensor backward(const Tensor& grad, const Tensor& input) { return mul(grad, sinh(input)); }
};

struct Erfinv : Rare<RareFunction::kErfinv, Saves::kOutput> {
  static constexpr const char* kName = "erfinv";
  static Tensor backward(const Tensor& grad, const Tensor& output) {
    return mul(grad, mul(exp(mul(output, output)), 0.5 / std::numbers::inv_sqrtpi));
  }
};

#define TANDEM_RARE_FUNCTIONS(X) \
  X(tan, Tan) X(asin, Asin) X(acos, Acos) X(atan, Atan) X(sinh, Sinh) X(cosh, Cosh) X(erfinv, Erfinv)

// --- powers --------------------------------------------------------------------------------------

/// base^exponent with overflow wrapping around; C is unsigned.
template <class C>
TANDEM_HOST_DEVICE C integer_power(C base, uint64_t exponent) {
  C result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

template <class C>
struct IntegerPower {
  uint64_t exponent;
  TANDEM_HOST_DEVICE C operator()(C x) const { return integer_power(x, exponent); }
};
template <class C>
struct Identity {
  TANDEM_HOST_DEVICE C operator()(C x) const { return x; }
};
template <class C>
struct Square {
  TANDEM_HOST_DEVICE C operator()(C x) const { return x * x; }
};
template <class C>
struct Cube {
  TANDEM_HOST_DEVICE C operator()(C x) const { return x * x * x; }
};
template <class C>
struct Inverse {
  TANDEM_HOST_DEVICE C operator()(C x) const { return C{1} / x; }
};
/// x^0.5: unlike sqrt it is 0 at -0 and infinite at -infinity.
template <class C>
struct HalfPower {
  TANDEM_HOST_DEVICE C operator()(C x) const {
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    return x == -kInfinity ? kInfinity : std::sqrt(x + C{0});
  }
};
/// x^-0.5: unlike rsqrt it is infinite at -0 and 0 at -infinity.
template <class C>
struct MinusHalfPower {
  TANDEM_HOST_DEVICE C operator()(C x) const {
    return x == -std::numeric_limits<C>::infinity() ? C{0} : C{1} / std::sqrt(x + C{0});
  }
};
template <class C>
struct PowerOf {
  C exponent;
  TANDEM_FORMULA C operator()(C x) const { return pow_element(x, exponent); }
};

/// input^exponent for one exponent.
struct PowScalar : UnaryOp<Saves::kInput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "pow";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  Scalar exponent = 1;

  void prepare(Tensor& input) const;
  Tensor backward(const Tensor& grad, const Tensor& input) const;
  template <class T, class Run>
  void visit(const Run& run) const {
    using C = Compute<T>;
    if constexpr (std::is_integral_v<T>) {
      return run(IntegerPower<C>{static_cast<uint64_t>(exponent.to_int())});
    } else {
      const C e = static_cast<C>(exponent.to_double());
      if (e == C{1}) return run(Identity<C>{});
      if (e == C{2}) return run(Square<C>{});
      if (e == C{3}) return run(Cube<C>{});
      if (e == C{-1}) return run(Inverse<C>{});
      if (e == C{0.5}) return run(HalfPower<C>{});
      if (e == C{-0.5}) return run(MinusHalfPower<C>{});
      return run(PowerOf<C>{e});
    }
  }
};

/// x^y for elements of type T.
template <class T>
struct Power {
  using C = Compute<T>;
  TANDEM_FORMULA C operator()(C x, C y) const {
    if constexpr (std::is_integral_v<T>) {
      const T base = static_cast<T>(x);
      const int64_t exponent = static_cast<int64_t>(static_cast<T>(y));
      if (exponent >= 0) return integer_power(x, static_cast<uint64_t>(exponent));
      if (base == T{1}) return C{1};
      return static_cast<T>(base + T{1}) == T{0} ? (exponent % 2 == 0 ? C{1} : x) : C{0};
    } else {
      return pow_element(x, y);
    }
  }
};

struct Pow : BinaryOp {
  static constexpr const char* kName = "pow";
  static constexpr const char* kArguments[] = {"input", "exponent"};
  static constexpr CastPolicy kCastPolicy = CastPolicy::kFloat32;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA | kB | kOut;

  void check(const char* name, const Tensor& input) const;
  static Tensor backward_a(const Tensor& grad, const Tensor& input, const Tensor& exponent);
  static Tensor backward_b(const Tensor& grad, const Tensor& input, const Tensor& exponent, const Tensor& output);
  template <class T, class Run>
  void visit(const Run& run) const {
    run(Power<T>{});
  }
};

// --- clamp ---------------------------------------------------------------------------------------

/// min(max(x, low), high) for elements of type T. A missing bound is an infinity for floating types, and the end of the
/// range for integers.
template <class T>
struct ClampElement {
  using C = Compute<T>;
  using Bound = std::conditional_t<std::is_integral_v<T>, T, C>;
  Bound low, high;
  bool has_low, has_high;
  bool passes_nan;

  TANDEM_FORMULA C operator()(C element) const {
    const Bound x = static_cast<Bound>(element);
    const Bound raised = x < low ? low : x;
    return static_cast<C>(raised > high ? high : raised);
  }
  TANDEM_FORMULA C gradient(C g, C x) const {
    const bool is_low = has_low & (x <= low), is_high = has_high & (x >= high);
    return (((x == x) | passes_nan) & !is_low & !is_high) ? g : C{0};
  }
};

struct Clamp : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "clamp";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  std::optional<Scalar> min, max;
  bool passes_nan = false;  ///< whether the gradient at NaN is passed

  void prepare(Tensor& input) const;
  template <class T, class Run>
  void visit(const Run& run) const {
    if constexpr (std::is_integral_v<T>) {
      run(ClampElement<T>{integer_bound(min, std::numeric_limits<T>::lowest()),
                          integer_bound(max, std::numeric_limits<T>::max()), min.has_value(), max.has_value(),
                          passes_nan});
    } else {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      run(ClampElement<T>{floating_bound<T>(min.value_or(-kInfinity)), floating_bound<T>(max.value_or(kInfinity)),
                          min.has_value(), max.has_value(), passes_nan});
    }
  }

 private:
  template <class T>
  static T integer_bound(std::optional<Scalar> bound, T missing) {
    constexpr int64_t kLowest = std::numeric_limits<T>::lowest(), kHighest = std::numeric_limits<T>::max();
    return bound ? static_cast<T>(std::clamp<int64_t>(bound->to_int(), kLowest, kHighest)) : missing;
  }
  template <class T>
  static Compute<T> floating_bound(Scalar bound) {
    return static_cast<Compute<T>>(bound.to<T>());
  }
};

}}}  // namespace tandem::v0::functions
