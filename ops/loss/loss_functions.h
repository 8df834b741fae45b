// Elementwise losses as structs (see elementwise_kernels.h). Private to ops/.
#pragma once

#include <cmath>

#include <tandem/ops/activation.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/ops/math.h>

namespace tandem { inline namespace v0 { namespace functions {

/// parabola d^2 where |d| < threshold, else slope (|d| - threshold / 2), with parabola = slope / (2 threshold).
template <class C>
struct HuberFormula {
  C threshold, slope, parabola;
  TANDEM_FORMULA C operator()(C d) const {
    const C size = std::fabs(d);
    return choose(size < threshold, parabola * d * d, slope * (size - threshold / 2));
  }
  TANDEM_FORMULA C gradient(C g, C d) const {
    const C line = choose(d != 0 && d == d, std::copysign(slope, d), d);
    return g * choose(std::fabs(d) < threshold, 2 * parabola * d, line);
  }
};
struct Huber : UnaryOp<Saves::kInput> {
  static constexpr const char* kName = "huber";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  double threshold = 0, slope = 1, parabola = 0;

  template <class T, class Run>
  void visit(const Run& run) const {
    using C = Compute<T>;
    run(HuberFormula<C>{static_cast<C>(threshold), static_cast<C>(slope), static_cast<C>(parabola)});
  }
  Tensor second_factor(const Tensor& d) const {
    return mul(to(lt(mul(d, d), threshold * threshold), d.dtype()), 2 * parabola);
  }
};

/// The derivative of binary_cross_entropy by x. Its own derivatives do not cancel.
struct BinaryCrossEntropySlope : BinaryOp {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA;
  template <class C>
  TANDEM_FORMULA C operator()(C x, C t) const {
    const C variance = x * (1 - x);
    return (x - t) / choose(variance < C(1e-12), C(1e-12), variance);
  }
  static Tensor variance(const Tensor& x) { return clamp(mul(x, sub(1, x)), 1e-12); }
  static Tensor backward_a(const Tensor& grad, const Tensor& x, const Tensor& t) {
    const Tensor distance = sub(x, t), root = variance(x);
    return mul(grad, div(add(mul(distance, distance), mul(t, sub(1, t))), mul(root, root)));
  }
  static Tensor backward_b(const Tensor& grad, const Tensor& x, const Tensor&, const Tensor&) {
    return neg(div(grad, variance(x)));
  }
};

/// binary_cross_entropy of one element.
struct BinaryCrossEntropy : BinaryOp {
  static constexpr const char* kName = "binary_cross_entropy";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA;
  template <class C>
  TANDEM_FORMULA C operator()(C x, C t) const {
    const C log_x = log_element(x), log_rest = log1p_element(-x);
    return (t - 1) * choose(log_rest < -100, C{-100}, log_rest) - t * choose(log_x < -100, C{-100}, log_x);
  }
  static Tensor backward_a(const Tensor& grad, const Tensor& x, const Tensor& t);
  static Tensor backward_b(const Tensor& grad, const Tensor& x, const Tensor&, const Tensor&) {
    return mul(grad, sub(clamp(log(sub(1, x)), -100), clamp(log(x), -100)));
  }
};

/// (1 - t) x + log(1 + e^-x).
struct BinaryCrossEntropyWithLogits : BinaryOp {
  static constexpr const char* kName = "binary_cross_entropy_with_logits";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  static constexpr unsigned kSavedForA = kA | kB, kSavedForB = kA;
  template <class C>
  TANDEM_FORMULA C operator()(C x, C t) const {
    return (1 - t) * x + (choose(x < 0, -x, C{0}) + log1p_exp_of_minus(std::fabs(x)));
  }
  static Tensor backward_a(const Tensor& grad, const Tensor& x, const Tensor& t) {
    return mul(grad, sub(sigmoid(x), t));
  }
  static Tensor backward_b(const Tensor& grad, const Tensor& x, const Tensor&, const Tensor&) {
    return neg(mul(grad, x));
  }
};

/// kl_div of one element.
struct KlDiv : BinaryOp {
  static constexpr const char* kName = "kl_div";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
  static constexpr unsigned kSavedForA = kB, kSavedForB = kA | kB;
  template <class C>
  TANDEM_FORMULA C operator()(C x, C t) const {
    const C loss = t * (log_element(t) - x);
    return t == 0 ? C{0} : loss;
  }
  static Tensor backward_a(const Tensor& grad, const Tensor&, const Tensor& t) { return neg(mul(grad, t)); }
  static Tensor backward_b(const Tensor& grad, const Tensor& x, const Tensor& t, const Tensor&) {
    return mul(grad, sub(add(log(t), 1), x));
  }
};

#define TANDEM_LOSS_KERNELS(UNARY, BINARY)          \
  UNARY(huber, Huber)                               \
  BINARY(binary_cross_entropy, BinaryCrossEntropy)  \
  BINARY(bce_slope, BinaryCrossEntropySlope)        \
  BINARY(with_logits, BinaryCrossEntropyWithLogits) \
  BINARY(kl_div, KlDiv)

}}}  // namespace tandem::v0::functions
