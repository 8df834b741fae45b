// What the kernels of roots, powers and bounds compute of single elements, for both kinds of devices.  Private to the kernels of
// ops/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include <tandem/ops/elementwise/math_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

template <class C>
struct SquareRoot {
  TANDEM_HOST_DEVICE C operator()(C x) const { return std::sqrt(x); }
};
template <class C>
struct InverseSquareRoot {
  TANDEM_HOST_DEVICE C operator()(C x) const { return C{1} / std::sqrt(x); }
};

/// Calls run(f) with what `op` computes in C.
template <class C, class Run>
void visit(RootOp op, const Run& run) {
  switch (op) {
    case RootOp::kSqrt: return run(SquareRoot<C>{});
    case RootOp::kRsqrt: return run(InverseSquareRoot<C>{});
  }
}

/// base^exponent modulo the number of values of C, an unsigned type.
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
struct Itself {
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
/// x^0.5, which unlike the square root is 0 at -0 and infinite at -infinity.
template <class C>
struct HalfPower {
  TANDEM_HOST_DEVICE C operator()(C x) const {
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    return x == -kInfinity ? kInfinity : std::sqrt(x + C{0});
  }
};
/// x^-0.5, which unlike rsqrt is infinite at -0 and 0 at -infinity.
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

/// Calls run(f) with f(x) = x^exponent, of elements of type T.
template <class T, class Run>
void visit_power(Scalar exponent, const Run& run) {
  using C = Compute<T>;
  if constexpr (std::is_integral_v<T>) {
    return run(IntegerPower<C>{static_cast<uint64_t>(exponent.to_int())});
  } else {
    const C e = static_cast<C>(exponent.to_double());
    if (e == C{1}) return run(Itself<C>{});
    if (e == C{2}) return run(Square<C>{});
    if (e == C{3}) return run(Cube<C>{});
    if (e == C{-1}) return run(Inverse<C>{});
    if (e == C{0.5}) return run(HalfPower<C>{});
    if (e == C{-0.5}) return run(MinusHalfPower<C>{});
    return run(PowerOf<C>{e});
  }
}

/// x^y, of elements of type T.
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

/// The bounds of elements of type T.  Where one is missing it is the end of T; one outside an integer's range is the end of that.
template <class T>
struct Bounds {
  T low, high;

  Bounds(std::optional<Scalar> least, std::optional<Scalar> most)
      : low(bound(least, -std::numeric_limits<double>::infinity())),
        high(bound(most, std::numeric_limits<double>::infinity())) {}

 private:
  static T bound(std::optional<Scalar> value, double missing) {
    if constexpr (std::is_integral_v<T>) {
      constexpr int64_t kLowest = std::numeric_limits<T>::lowest(), kHighest = std::numeric_limits<T>::max();
      if (!value) return missing < 0 ? T{kLowest} : T{kHighest};
      return static_cast<T>(std::clamp<int64_t>(value->to_int(), kLowest, kHighest));
    } else {
      return value ? value->to<T>() : Scalar(missing).to<T>();
    }
  }
};

/// min(max(x, low), high), of elements of type T.  The arithmetic of integers is unsigned: they are compared in T.
template <class T>
struct Clamp {
  using C = Compute<T>;
  using Compared = std::conditional_t<std::is_integral_v<T>, T, C>;
  Compared low, high;

  explicit Clamp(Bounds<T> bounds) : low(static_cast<Compared>(bounds.low)), high(static_cast<Compared>(bounds.high)) {}
  TANDEM_HOST_DEVICE C operator()(C element) const {
    const Compared x = static_cast<Compared>(element);
    const Compared raised = x < low ? low : x;
    return static_cast<C>(raised > high ? high : raised);
  }
};

/// g where low < x < high, else 0.  A low bound that is missing is NaN here: infinite x passes it.
template <class C>
struct GradientBelow {
  C low, high;
  TANDEM_HOST_DEVICE C operator()(C g, C x) const { return !(x <= low) & (x < high) ? g : C{0}; }
};
/// g where low < x, else 0.
template <class C>
struct GradientAbove {
  C low;
  TANDEM_HOST_DEVICE C operator()(C g, C x) const { return x > low ? g : C{0}; }
};

/// Calls run(f) with the gradient of clamp, of elements of type T; at least one bound is there.
template <class T, class Run>
void visit_clamp_backward(std::optional<Scalar> low, std::optional<Scalar> high, const Run& run) {
  using C = Compute<T>;
  const C least = low ? static_cast<C>(low->to<T>()) : std::numeric_limits<C>::quiet_NaN();
  if (high) return run(GradientBelow<C>{least, static_cast<C>(high->to<T>())});
  return run(GradientAbove<C>{least});
}

}}}  // namespace tandem::v0::functions
