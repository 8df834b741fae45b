// Roots, powers and clamp as structs (see elementwise_kernels.h). Private to ops/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/math.h>

namespace tandem { inline namespace v0 { namespace functions {

struct Sqrt : UnaryOp {
  static constexpr const char* kName = "sqrt";
  static constexpr Saves kSaves = Saves::kOutput;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    return std::sqrt(x);
  }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return div(grad, mul(output, 2)); }
};

struct Rsqrt : UnaryOp {
  static constexpr const char* kName = "rsqrt";
  static constexpr CastPolicy kCastPolicy = CastPolicy::kFloat32;
  static constexpr Saves kSaves = Saves::kOutput;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    return C{1} / std::sqrt(x);
  }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, mul(pow(output, 3), -0.5)); }
};

struct Sin : UnaryOp {
  static constexpr const char* kName = "sin";
  static constexpr Saves kSaves = Saves::kInput;
  template <class C>
  TANDEM_FORMULA C operator()(C x) const {
    return std::sin(x);
  }
  template <class C>
  TANDEM_FORMULA C gradient(C g, C x) const {
    return g * std::cos(x);
  }
  static Tensor second_factor(const Tensor& input) { return -sin(input); }
};

#define TANDEM_MATH_FUNCTIONS(X) X(sqrt, Sqrt) X(rsqrt, Rsqrt) X(sin, Sin)

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
  TANDEM_HOST_DEVICE C operator()(C x) const { return std::pow(x, exponent); }
};

/// input^exponent for one exponent.
struct PowScalar : UnaryOp {
  static constexpr const char* kName = "pow";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  static constexpr CastPolicy kCastPolicy = CastPolicy::kFloat32;
  static constexpr Saves kSaves = Saves::kInput;
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
  TANDEM_HOST_DEVICE C operator()(C x, C y) const {
    if constexpr (std::is_integral_v<T>) {
      const T base = static_cast<T>(x);
      const int64_t exponent = static_cast<int64_t>(static_cast<T>(y));
      if (exponent >= 0) return integer_power(x, static_cast<uint64_t>(exponent));
      if (base == T{1}) return C{1};
      return static_cast<T>(base + T{1}) == T{0} ? (exponent % 2 == 0 ? C{1} : x) : C{0};
    } else {
      return std::pow(x, y);
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

/// min(max(x, low), high) for elements of type T. A missing bound is NaN for floating types, and the end of the range
/// for integers.
template <class T>
struct ClampElement {
  using C = Compute<T>;
  using Bound = std::conditional_t<std::is_integral_v<T>, T, C>;
  Bound low, high;

  TANDEM_FORMULA C operator()(C element) const {
    const Bound x = static_cast<Bound>(element);
    const Bound raised = x < low ? low : x;
    return static_cast<C>(raised > high ? high : raised);
  }
  TANDEM_FORMULA C gradient(C g, C x) const { return (x == x) & !(x <= low) & !(x >= high) ? g : C{0}; }
};

struct Clamp : UnaryOp {
  static constexpr const char* kName = "clamp";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  static constexpr Saves kSaves = Saves::kInput;
  std::optional<Scalar> min, max;

  void prepare(Tensor& input) const;
  template <class T, class Run>
  void visit(const Run& run) const {
    if constexpr (std::is_integral_v<T>) {
      run(ClampElement<T>{integer_bound(min, std::numeric_limits<T>::lowest()),
                          integer_bound(max, std::numeric_limits<T>::max())});
    } else {
      run(ClampElement<T>{floating_bound<T>(min), floating_bound<T>(max)});
    }
  }

 private:
  template <class T>
  static T integer_bound(std::optional<Scalar> bound, T missing) {
    constexpr int64_t kLowest = std::numeric_limits<T>::lowest(), kHighest = std::numeric_limits<T>::max();
    return bound ? static_cast<T>(std::clamp<int64_t>(bound->to_int(), kLowest, kHighest)) : missing;
  }
  template <class T>
  static Compute<T> floating_bound(std::optional<Scalar> bound) {
    return bound ? static_cast<Compute<T>>(bound->to<T>()) : std::numeric_limits<Compute<T>>::quiet_NaN();
  }
};

}}}  // namespace tandem::v0::functions
