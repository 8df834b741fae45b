// What the elementwise kernels compute of single elements, for both kinds of devices.  Private to the kernels of ops/.
//
// Functions are named structs: a GPU's kernels are made of types that have names.
#pragma once

#include <type_traits>

#include <tandem/ops/elementwise/elementwise_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// a + factor b.
template <class C>
struct AddMultiple {
  C factor;
  TANDEM_HOST_DEVICE C operator()(C a, C b) const { return a + factor * b; }
};
template <class C>
struct Add {
  TANDEM_HOST_DEVICE C operator()(C a, C b) const { return a + b; }
};
template <class C>
struct Subtract {
  TANDEM_HOST_DEVICE C operator()(C a, C b) const { return a - b; }
};
template <class C>
struct Multiply {
  TANDEM_HOST_DEVICE C operator()(C a, C b) const { return a * b; }
};
template <class C>
struct Divide {
  TANDEM_HOST_DEVICE C operator()(C a, C b) const { return a / b; }
};
template <class C>
struct ReluBackward {
  TANDEM_HOST_DEVICE C operator()(C grad, C output) const { return output <= C{0} ? C{0} : grad; }
};

/// -grad a / b^2, in the order in which b^2 does not overflow.
template <class C>
struct DivBackward {
  TANDEM_HOST_DEVICE C operator()(C grad, C a, C b) const { return -grad * ((a / b) / b); }
};

/// Calls run(f) with what `op` computes of elements of type T.
template <class T, class Run>
void visit(BinaryOp op, Scalar alpha, const Run& run) {
  using C = Compute<T>;
  switch (op) {
    case BinaryOp::kAdd: {
      const C factor = alpha.to<C>();
      return factor == C{1} ? run(Add<C>{}) : run(AddMultiple<C>{factor});
    }
    case BinaryOp::kSub: return run(Subtract<C>{});
    case BinaryOp::kMul: return run(Multiply<C>{});
    case BinaryOp::kDiv:
      if constexpr (!std::is_integral_v<T>) run(Divide<C>{});
      return;
    case BinaryOp::kReluBackward:
      if constexpr (!std::is_integral_v<T>) run(ReluBackward<C>{});
      return;
  }
}

/// Comparisons of elements of T.  Not in the type of arithmetic: unsigned numbers would order negative integers wrongly.
template <class T, CompareOp op>
struct Compare {
  using C = std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, int64_t, int32_t>, Compute<T>>;
  TANDEM_HOST_DEVICE bool operator()(Compute<T> left, Compute<T> right) const {
    const C a = static_cast<C>(left), b = static_cast<C>(right);
    if constexpr (op == CompareOp::kEqual) return a == b;
    if constexpr (op == CompareOp::kNotEqual) return a != b;
    if constexpr (op == CompareOp::kLess) return a < b;
    return a <= b;
  }
};

template <class T, class Run>
void visit(CompareOp op, const Run& run) {
  switch (op) {
    case CompareOp::kEqual: return run(Compare<T, CompareOp::kEqual>{});
    case CompareOp::kNotEqual: return run(Compare<T, CompareOp::kNotEqual>{});
    case CompareOp::kLess: return run(Compare<T, CompareOp::kLess>{});
    case CompareOp::kLessEqual: return run(Compare<T, CompareOp::kLessEqual>{});
  }
}

/// Zero is taken from integers, which leaves them what they are; from a floating zero it would make a positive one.
template <class T>
struct Negate {
  using C = Compute<T>;
  TANDEM_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<T>) {
      return C{0} - x;
    } else {
      return -x;
    }
  }
};
/// The arithmetic of integers is unsigned: the sign is T's.
template <class T>
struct Relu {
  using C = Compute<T>;
  TANDEM_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(x) > T{0} ? x : C{0};
    } else {
      return x < C{0} ? C{0} : x;
    }
  }
};
template <class C>
struct Exp {
  TANDEM_HOST_DEVICE C operator()(C x) const { return exp_element(x); }
};
template <class C>
struct Log {
  TANDEM_HOST_DEVICE C operator()(C x) const { return log_element(x); }
};

template <class T, class Run>
void visit(UnaryOp op, const Run& run) {
  switch (op) {
    case UnaryOp::kNegate: return run(Negate<T>{});
    case UnaryOp::kRelu: return run(Relu<T>{});
    case UnaryOp::kExp:
      if constexpr (!std::is_integral_v<T>) run(Exp<Compute<T>>{});
      return;
    case UnaryOp::kLog:
      if constexpr (!std::is_integral_v<T>) run(Log<Compute<T>>{});
      return;
  }
}

}}}  // namespace tandem::v0::functions
