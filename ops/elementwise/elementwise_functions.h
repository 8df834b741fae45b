// Arithmetic and comparisons as structs (see elementwise_kernels.h). Private to ops/.
#pragma once

#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/math_formulas.h>

namespace tandem { inline namespace v0 { namespace functions {

struct Neg : UnaryOp<> {
  static constexpr const char* kName = "neg";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  TANDEM_FORMULA auto operator()(auto x) const { return -x; }
  static Tensor backward(const Tensor& grad, const Tensor&) { return neg(grad); }
};

struct Exp : UnaryOp<Saves::kOutput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "exp";
  TANDEM_FORMULA auto operator()(auto x) const { return exp_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& output) { return mul(grad, output); }
};

struct Log : UnaryOp<Saves::kInput, CastPolicy::kFloat32> {
  static constexpr const char* kName = "log";
  TANDEM_FORMULA auto operator()(auto x) const { return log_element(x); }
  static Tensor backward(const Tensor& grad, const Tensor& input) { return div(grad, input); }
};

struct Relu : UnaryOp<Saves::kOutput> {
  static constexpr const char* kName = "relu";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kNotBool;
  TANDEM_FORMULA auto operator()(auto x) const { return signed_value(x) < 0 ? 0 : x; }
  TANDEM_FORMULA auto gradient(auto g, auto output) const { return output <= 0 ? 0 : g; }
};

#define TANDEM_UNARY_FUNCTIONS(X) X(neg, Neg) X(exp, Exp) X(log, Log) X(relu, Relu)

/// Formulas of AddMultiple.
struct Plus {
  TANDEM_FORMULA auto operator()(auto a, auto b) const { return a + b; }
};
struct Minus {
  TANDEM_FORMULA auto operator()(auto a, auto b) const { return a - b; }
};
template <class C>
struct PlusMultiple {
  C factor;
  TANDEM_FORMULA C operator()(C a, C b) const { return a + factor * b; }
};

/// a + alpha b, or a - alpha b.
template <bool subtracts>
struct AddMultiple : BinaryOp {
  static constexpr const char* kName = subtracts ? "sub" : "add";
  static constexpr DTypeRule kDTypeRule = subtracts ? DTypeRule::kNotBool : DTypeRule::kAny;
  Scalar alpha = 1;

  void check(const char* name, const Tensor& a) const {
    TANDEM_CHECK(DTypeError, alpha.dtype() != kFloat64 || is_floating_point(a.dtype()), name,
                 ": alpha is the floating number ", alpha.to_double(), ", but the result is ", a.dtype());
  }
  Scalar factor() const {
    if (!subtracts) return alpha;
    return alpha.dtype() == kFloat64 ? Scalar(-alpha.to_double()) : Scalar(-alpha.to_int());
  }
  template <class T, class Run>
  void visit(const Run& run) const {
    using C = Compute<T>;
    const C multiple = factor().template to<C>();
    if (multiple == C{1}) return run(Plus{});
    if (multiple == static_cast<C>(-1)) return run(Minus{});
    run(PlusMultiple<C>{multiple});
  }
  Tensor backward_a(const Tensor& grad, const Tensor&, const auto&) const { return grad; }
  Tensor backward_b(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&) const {
    return factor().to_double() == 1 ? grad : mul(grad, factor());
  }
};
using Add = AddMultiple<false>;
using Sub = AddMultiple<true>;

struct Mul : BinaryOp {
  static constexpr const char* kName = "mul";
  static constexpr unsigned kSavedForA = kB, kSavedForB = kA;
  TANDEM_FORMULA auto operator()(auto a, auto b) const { return a * b; }
  static Tensor backward_a(const Tensor& grad, const Tensor&, const auto& b) { return mul(grad, b); }
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor&, const Tensor&) { return mul(grad, a); }
};

struct Div : BinaryOp {
  static constexpr const char* kName = "div";
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr unsigned kSavedForA = kB, kSavedForB = kA | kB;
  TANDEM_FORMULA auto operator()(auto a, auto b) const { return a / b; }
  static Tensor backward_a(const Tensor& grad, const Tensor&, const auto& b) { return div(grad, b); }
  /// -grad a / b^2, rounded once.
  static Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&);
};

/// The kernel formula of Div::backward_b, ordered so that b^2 does not overflow.
struct DivBackward : TernaryOp {
  TANDEM_FORMULA auto operator()(auto grad, auto a, auto b) const { return -grad * ((a / b) / b); }
};

struct Comparison : BinaryOp {
  static constexpr bool kReturnsBool = true;
};

struct Eq : Comparison {
  static constexpr const char* kName = "eq";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return a == b; }
};
struct Ne : Comparison {
  static constexpr const char* kName = "ne";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return a != b; }
};
struct Lt : Comparison {
  static constexpr const char* kName = "lt";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return signed_value(a) < signed_value(b); }
};
struct Le : Comparison {
  static constexpr const char* kName = "le";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return signed_value(a) <= signed_value(b); }
};
struct Gt : Comparison {
  static constexpr const char* kName = "gt";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return signed_value(a) > signed_value(b); }
};
struct Ge : Comparison {
  static constexpr const char* kName = "ge";
  TANDEM_FORMULA bool operator()(auto a, auto b) const { return signed_value(a) >= signed_value(b); }
};

#define TANDEM_COMPARISONS(X) X(eq, Eq) X(ne, Ne) X(lt, Lt) X(le, Le) X(gt, Gt) X(ge, Ge)

}}}  // namespace tandem::v0::functions

namespace tandem { inline namespace v0 { namespace ops {

/// The gradient of a ReLU with this output, also of fused ones. Recorded; layout of output.
Tensor relu_backward(const Tensor& grad, const Tensor& output);

/// Records sum = a + b as operation `op`; all have one shape, and the sum has a's dtype.
void record_sum(const char* op, const Tensor& sum, const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::ops
