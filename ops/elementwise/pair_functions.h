// Functions of two and three tensors as structs (see elementwise_kernels.h). Private to ops/.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/ops/math.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace functions {

/// A function of `input` and `other`.
struct PairOp : BinaryOp {
  static constexpr const char* kArguments[] = {"input", "other"};
};

// --- maximum and minimum -------------------------------------------------------------------------

/// The gradient of maximum(a, b) with respect to a; of minimum(a, b) with respect to b.
struct ExtremumBackward : TernaryOp {
  template <class C>
  TANDEM_FORMULA C operator()(C grad, C a, C b) const {
    return choose(a < b, C{0}, choose(a == b, grad * C{0.5}, grad));
  }
};

template <bool is_maximum>
struct Extremum : PairOp {
  static constexpr const char* kName = is_maximum ? "maximum" : "minimum";
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA | kB;
  template <class C>
  TANDEM_FORMULA C operator()(C a, C b) const {
    const auto x = signed_value(a), y = signed_value(b);
    const bool takes_a = (is_maximum ? x > y : x < y) | (x != x);
    if constexpr (std::is_integral_v<C>) {
      return takes_a ? a : b;
    } else {
      return choose(takes_a, a, b);
    }
  }
  static Tensor backward_a(const Tensor& grad, const Tensor& a, const Tensor& b) {
    return is_maximum ? gradient(grad, a, b) : gradient(grad, b, a);
  }
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
    return is_maximum ? gradient(grad, b, a) : gradient(grad, a, b);
  }
  /// ExtremumBackward, recorded.
  static Tensor gradient(const Tensor& grad, const Tensor& a, const Tensor& b);
};
using Maximum = Extremum<true>;
using Minimum = Extremum<false>;

// --- division with rounding ----------------------------------------------------------------------

/// Quotients rounded to an integer and their remainders. An integer divided by 0 gives 0, and remainder 0.
struct Division : BinaryOp {
  enum Kind : int8_t { kTrunc, kFloor, kFmod, kRemainder };
  Kind kind;
  template <class C>
  TANDEM_HOST_DEVICE C operator()(C a, C b) const {
    const bool is_quotient = kind == kTrunc || kind == kFloor, is_floored = kind == kFloor || kind == kRemainder;
    if constexpr (std::is_integral_v<C>) {
      const auto x = signed_value(a), y = signed_value(b);
      if (y == 0 || y == -1) return is_quotient ? b * a : C{0};  // -a wraps around
      const auto rest = x % y;
      const bool adjusts = is_floored && rest != 0 && (rest < 0) != (y < 0);
      return static_cast<C>(is_quotient ? x / y - (adjusts ? 1 : 0) : rest + (adjusts ? y : 0));
    } else {
      if (kind == kTrunc) return std::trunc(a / b);
      if (kind == kFloor && b == C{0}) return a / b;
      const C rest = std::fmod(a, b);
      const bool adjusts = is_floored && rest != C{0} && (rest < C{0}) != (b < C{0});
      if (!is_quotient) return adjusts ? rest + b : rest;
      const C quotient = (a - rest) / b - (adjusts ? C{1} : C{0});  // an integer, up to rounding
      return quotient == C{0} ? std::copysign(C{0}, a / b) : std::nearbyint(quotient);
    }
  }
};

/// One operand may be bool.
inline void check_common_dtype(const char* name, const Tensor& a) {
  TANDEM_CHECK(DTypeError, a.dtype() != kBool, name, ": both operands are bool; convert one with to(kInt64)");
}

template <Division::Kind kind>
struct RoundedQuotient : BinaryOp {
  static constexpr const char* kName = "div";
  static Division kernel() { return {{}, kind}; }
  static void check(const char* name, const Tensor& a) { check_common_dtype(name, a); }
  static Tensor backward_a(const Tensor& grad, const Tensor&, const auto&) { return zeros_like(grad); }
  static Tensor backward_b(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&) { return zeros_like(grad); }
};
using TruncDiv = RoundedQuotient<Division::kTrunc>;
using FloorDiv = RoundedQuotient<Division::kFloor>;

/// a - b * quotient, where the quotient is truncated (fmod) or rounded down (remainder).
template <Division::Kind kind>
struct Modulo : PairOp {
  static constexpr const char* kName = kind == Division::kFmod ? "fmod" : "remainder";
  static constexpr unsigned kSavedForB = kA | kB;
  static Division kernel() { return {{}, kind}; }
  static void check(const char* name, const Tensor& a) { check_common_dtype(name, a); }
  static Tensor backward_a(const Tensor& grad, const Tensor&, const auto&) { return grad; }
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
    return neg(mul(grad, div(a, b, kind == Division::kFmod ? RoundingMode::kTrunc : RoundingMode::kFloor)));
  }
};
using Fmod = Modulo<Division::kFmod>;
using Remainder = Modulo<Division::kRemainder>;

// --- bits ----------------------------------------------------------------------------------------

struct Bits : BinaryOp {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kIntegral;
  enum Kind : int8_t { kAnd, kOr, kXor };
  Kind kind;
  template <class C>
  TANDEM_FORMULA C operator()(C a, C b) const {
    return kind == kAnd ? a & b : kind == kOr ? a | b : a ^ b;
  }
};
template <Bits::Kind kind>
struct Bitwise : PairOp {
  static constexpr const char* kName = kind == Bits::kAnd  ? "bitwise_and"
                                       : kind == Bits::kOr ? "bitwise_or"
                                                           : "bitwise_xor";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kIntegral;
  static Bits kernel() { return {{}, kind}; }
  void check(const char* name, const Tensor& a) const {
    TANDEM_CHECK(DTypeError, !is_floating_point(a.dtype()), name, ": integers or bools are needed, got ", a.dtype());
  }
};
using BitwiseAnd = Bitwise<Bits::kAnd>;
using BitwiseOr = Bitwise<Bits::kOr>;
using BitwiseXor = Bitwise<Bits::kXor>;

// --- logarithms and angles -----------------------------------------------------------------------

struct Logaddexp : PairOp {
  static constexpr const char* kName = "logaddexp";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA | kB;
  template <class C>
  TANDEM_FORMULA C operator()(C a, C b) const {
    const C difference = a - b;  // NaN for equal infinities
    const C larger = choose(difference > C{0}, a, b);
    return choose(a == b, a + std::numbers::ln2_v<C>, larger + log1p_exp_of_minus(std::fabs(difference)));
  }
  static Tensor backward_a(const Tensor& grad, const Tensor& a, const Tensor& b);
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
    return backward_a(grad, b, a);
  }
};

struct RarePair : BinaryOp {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  enum Kind : int8_t { kXlogy, kAtan2 };
  Kind kind;
  template <class C>
  TANDEM_HOST_DEVICE C operator()(C a, C b) const {
    if (kind == kAtan2) return static_cast<C>(std::atan2(LibraryType<C>{a}, LibraryType<C>{b}));
    return a == C{0} && b == b ? C{0} : a * log_element(b);
  }
};

struct Xlogy : PairOp {
  static constexpr const char* kName = "xlogy";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA | kB;
  static RarePair kernel() { return {{}, RarePair::kXlogy}; }
  static Tensor backward_a(const Tensor& grad, const Tensor& a, const Tensor& b);
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
    return div(mul(grad, a), b);
  }
};

struct Atan2 : PairOp {
  static constexpr const char* kName = "atan2";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA | kB;
  static RarePair kernel() { return {{}, RarePair::kAtan2}; }
  /// grad b / (a^2 + b^2), 0 at the origin.
  static Tensor backward_a(const Tensor& grad, const Tensor& a, const Tensor& b);
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
    return neg(backward_a(grad, b, a));
  }
};

// --- combinations of three tensors ---------------------------------------------------------------

/// a + w (b - a), from the nearer end.
template <class C>
TANDEM_HOST_DEVICE TANDEM_INLINED inline C lerp_element(C a, C b, C w) {
  const C span = b - a;
  return choose(std::fabs(w) < C{0.5}, a + w * span, b - span * (C{1} - w));
}

template <class C>
struct LerpBy {
  C weight;
  TANDEM_FORMULA C operator()(C a, C b) const { return lerp_element(a, b, weight); }
};
struct LerpNumber : BinaryOp {
  static constexpr const char* kName = "lerp";
  static constexpr const char* kArguments[] = {"input", "end"};
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  Scalar weight = 0;
  void check(const char* name, const Tensor& input) const;
  template <class T, class Run>
  void visit(const Run& run) const {
    run(LerpBy<Compute<T>>{weight.to<Compute<T>>()});
  }
  Tensor backward_a(const Tensor& grad, const Tensor&, const Tensor&) const {
    return mul(grad, 1 - weight.to_double());
  }
  Tensor backward_b(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&) const { return mul(grad, weight); }
};

struct Lerp : TernaryOp {
  static constexpr const char* kName = "lerp";
  static constexpr const char* kArguments[] = {"input", "end", "weight"};
  static constexpr int kSavedFor[] = {4, 4, 3};
  TANDEM_FORMULA auto operator()(auto a, auto b, auto w) const { return lerp_element(a, b, w); }
  static Tensor backward(int i, const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& w) {
    return mul(grad, i == 0 ? sub(1, w) : i == 1 ? w : sub(b, a));
  }
};

template <class C>
struct AddProduct {
  C value;
  TANDEM_FORMULA C operator()(C a, C b, C c) const { return a + value * b * c; }
};
struct Addcmul : TernaryOp {
  static constexpr const char* kName = "addcmul";
  static constexpr const char* kArguments[] = {"input", "tensor1", "tensor2"};
  static constexpr DTypeRule kDTypeRule = DTypeRule::kAny;
  static constexpr int kSavedFor[] = {0, 4, 2};
  Scalar value = 1;
  void check(const char* name, const Tensor& input) const;
  template <class T, class Run>
  void visit(const Run& run) const {
    run(AddProduct<Compute<T>>{value.to<Compute<T>>()});
  }
  Tensor backward(int i, const Tensor& grad, const Tensor&, const Tensor& b, const Tensor& c) const {
    return i == 0 ? grad : mul(mul(grad, i == 1 ? c : b), value);
  }
};

template <class C>
struct AddQuotient {
  C value;
  TANDEM_FORMULA C operator()(C a, C b, C c) const { return a + value * (b / c); }
};
struct Addcdiv : TernaryOp {
  static constexpr const char* kName = "addcdiv";
  static constexpr const char* kArguments[] = {"input", "tensor1", "tensor2"};
  static constexpr int kSavedFor[] = {0, 4, 6};
  Scalar value = 1;
  template <class T, class Run>
  void visit(const Run& run) const {
    run(AddQuotient<Compute<T>>{value.to<Compute<T>>()});
  }
  Tensor backward(int i, const Tensor& grad, const Tensor&, const Tensor& b, const Tensor& c) const {
    if (i == 0) return grad;
    const Tensor of_quotient = mul(grad, value);
    return div(i == 1 ? of_quotient : neg(mul(of_quotient, div(b, c))), c);
  }
};

#define TANDEM_PAIR_KERNELS(X) \
  X(maximum, Maximum)          \
  X(minimum, Minimum)          \
  X(division, Division) X(bits, Bits) X(logaddexp, Logaddexp) X(rare_pair, RarePair) X(lerp, LerpNumber)
#define TANDEM_TRIPLE_KERNELS(X) X(ExtremumBackward) X(Lerp) X(Addcmul) X(Addcdiv)

}}}  // namespace tandem::v0::functions
