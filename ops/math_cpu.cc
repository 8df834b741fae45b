// CPU kernels of roots, powers and bounds.  The target is compiled without errno for mathematics, which would keep square
// roots from becoming vector code.
#include <algorithm>
#include <cmath>
#include <limits>

#include <tandem/ops/elementwise_map.h>
#include <tandem/ops/math_kernels.h>

namespace tandem::inline v0::cpu {
namespace {

/// base^exponent modulo the number of values of C, an unsigned type.
template <class C>
C integer_power(C base, uint64_t exponent) {
  C result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/// A bound in T, or `missing` where there is none; one outside an integer's range is the end of that.
template <class T>
T bound(std::optional<Scalar> value, double missing) {
  if constexpr (std::is_integral_v<T>) {
    constexpr int64_t kLowest = std::numeric_limits<T>::lowest(), kHighest = std::numeric_limits<T>::max();
    if (!value) return missing < 0 ? T{kLowest} : T{kHighest};
    return static_cast<T>(std::clamp<int64_t>(value->to_int(), kLowest, kHighest));
  } else {
    return value ? value->to<T>() : Scalar(missing).to<T>();
  }
}
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void root(const KernelContext&, RootOp op, DType dtype, const Loop<2>& loop, const void* a, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    switch (op) {
      case RootOp::kSqrt: return map_unary<T>(loop, a, out, [](C x) { return std::sqrt(x); });
      case RootOp::kRsqrt: return map_unary<T>(loop, a, out, [](C x) { return C{1} / std::sqrt(x); });
    }
  });
}

void pow(const KernelContext&, DType dtype, const Loop<2>& loop, Scalar exponent, const void* a, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const auto run = [&](auto f) { map_unary<T>(loop, a, out, f); };
    if constexpr (std::is_integral_v<T>) {
      const uint64_t e = static_cast<uint64_t>(exponent.to_int());
      return run([e](C x) { return integer_power(x, e); });
    } else {
      const C e = static_cast<C>(exponent.to_double());
      if (e == C{1}) return run([](C x) { return x; });
      if (e == C{2}) return run([](C x) { return x * x; });
      if (e == C{3}) return run([](C x) { return x * x * x; });
      if (e == C{-1}) return run([](C x) { return C{1} / x; });
      if (e == C{0.5}) return run([](C x) { return std::sqrt(x); });
      if (e == C{-0.5}) return run([](C x) { return C{1} / std::sqrt(x); });
      return run([e](C x) { return std::pow(x, e); });
    }
  });
}

void pow(const KernelContext&, DType dtype, const Loop<3>& loop, const void* a, const void* b, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    if constexpr (std::is_integral_v<T>) {
      map_binary<T, T>(loop, a, b, out, [](C x, C y) {
        const T base = static_cast<T>(x);
        const int64_t exponent = static_cast<int64_t>(static_cast<T>(y));
        if (exponent >= 0) return integer_power(x, static_cast<uint64_t>(exponent));
        if (base == T{1}) return C{1};
        return static_cast<T>(base + T{1}) == T{0} ? (exponent % 2 == 0 ? C{1} : x) : C{0};
      });
    } else {
      map_binary<T, T>(loop, a, b, out, [](C x, C y) { return std::pow(x, y); });
    }
  });
}

void clamp(const KernelContext&, DType dtype, const Loop<2>& loop, std::optional<Scalar> low,
           std::optional<Scalar> high, const void* a, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const T low_value = bound<T>(low, -kInfinity);
    const T high_value = bound<T>(high, kInfinity);
    if constexpr (std::is_integral_v<T>) {
      map_unary<T>(loop, a, out, [=](C x) {  // arithmetic is unsigned: compare in T
        return static_cast<C>(std::min(std::max(static_cast<T>(x), low_value), high_value));
      });
    } else {
      const C least = static_cast<C>(low_value), most = static_cast<C>(high_value);
      map_unary<T>(loop, a, out, [=](C x) {
        const C raised = x < least ? least : x;
        return raised > most ? most : raised;
      });
    }
  });
}

void clamp_backward(const KernelContext&, DType dtype, const Loop<3>& loop, std::optional<Scalar> low,
                    std::optional<Scalar> high, const void* grad, const void* a, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const C least = static_cast<C>(bound<T>(low, -kInfinity));
    const C most = static_cast<C>(bound<T>(high, kInfinity));
    map_binary<T, T>(loop, grad, a, out, [=](C g, C x) { return (x >= least) & (x <= most) ? g : C{0}; });
  });
}

}  // namespace tandem::inline v0::cpu
