// Kernels of cumulative operations. All scan the middle dimension of a row-major block [outer, size, inner].
//
// A scan combines states by an associative function. Its formula has members
//
//     State                                  a trivial type
//     State start() const                    the neutral state
//     State load(int64_t at, int64_t i)      the state of the element at `at`, the i-th of its line in scan order
//     State combine(State a, State b) const  a precedes b
//     void store(int64_t at, int64_t i, State) const  writes the result of that element
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tandem/ops/common/extents.h>
#include <tandem/ops/common/order_key.h>
#include <tandem/tensor/convert.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

enum class ScanKind : int8_t { kSum, kProduct, kLogSumExp };

/// Formulas on elements of type T with states of type A.
namespace scans {

template <class T, class A>
struct Elements {
  using State = A;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  const T* in;
  Out* out;
  TANDEM_HOST_DEVICE A load(int64_t at, int64_t) const { return static_cast<A>(in[at]); }
  TANDEM_HOST_DEVICE void store(int64_t at, int64_t, A state) const { out[at] = static_cast<Out>(state); }
};

template <class T, class A>
struct Sum : Elements<T, A> {
  TANDEM_HOST_DEVICE A start() const { return 0; }
  TANDEM_HOST_DEVICE A combine(A a, A b) const { return primitives::add(a, b); }
};

template <class T, class A>
struct Product : Elements<T, A> {
  TANDEM_HOST_DEVICE A start() const { return 1; }
  TANDEM_HOST_DEVICE A combine(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));  // wraps around
    } else {
      return a * b;
    }
  }
};

template <class T, class A>
struct LogSumExp : Elements<T, A> {
  TANDEM_HOST_DEVICE A start() const { return -std::numeric_limits<A>::infinity(); }
  TANDEM_HOST_DEVICE A combine(A a, A b) const {
    const A high = a > b ? a : b, low = a > b ? b : a;
    if (a != a) return a;
    if (high - high != 0) return high;  // an infinity, or NaN
    return high + std::log1p(std::exp(low - high));
  }
};

/// y -> b + a y, the state of a linear recurrence.
template <class A>
struct Affine {
  A a, b;
};

template <class T, class A>
struct Linear {
  using State = Affine<A>;
  /// 0 if a factor is 0, even if the other one, itself a product, has overflowed.
  TANDEM_HOST_DEVICE static A product(A x, A y) { return x == 0 || y == 0 ? 0 : x * y; }
  const T* factors;
  const T* in;
  T* out;
  int64_t to_factor;  ///< distance from an element to its factor
  TANDEM_HOST_DEVICE State start() const { return {1, 0}; }
  TANDEM_HOST_DEVICE State load(int64_t at, int64_t i) const {
    return {i == 0 ? A{0} : static_cast<A>(factors[at + to_factor]), static_cast<A>(in[at])};
  }
  TANDEM_HOST_DEVICE State combine(State x, State y) const { return {product(x.a, y.a), y.b + product(y.a, x.b)}; }
  TANDEM_HOST_DEVICE void store(int64_t at, int64_t, State state) const { out[at] = static_cast<T>(state.b); }
};

/// A key and its position in the line; negative: none. Without padding.
struct Candidate {
  int64_t key, i;
};

template <class T>
struct Extremum {
  using State = Candidate;
  const T* in;
  T* values;
  int64_t* indices;
  bool largest;
  int64_t inner;
  TANDEM_HOST_DEVICE State start() const { return {std::numeric_limits<int64_t>::min(), -1}; }
  TANDEM_HOST_DEVICE State load(int64_t at, int64_t i) const { return {extremum_key(in[at], largest, true), i}; }
  TANDEM_HOST_DEVICE State combine(State a, State b) const { return b.i >= 0 && b.key >= a.key ? b : a; }
  TANDEM_HOST_DEVICE void store(int64_t at, int64_t i, State state) const {
    values[at] = in[at - (i - state.i) * inner];
    indices[at] = state.i;
  }
};

}  // namespace scans

/// Calls run(formula) for a cumulative sum, product or log of a sum of exponentials. kWide: accumulate floats in
/// double.
template <bool kWide, class Run>
void visit_scan(ScanKind kind, DType dtype, const void* in, void* out, const Run& run) {
  visit_dtype(dtype, [&]<class T>() {
    using A = std::conditional_t<std::is_integral_v<T>, int64_t, std::conditional_t<kWide, double, Accumulator<T>>>;
    const scans::Elements<T, A> elements{static_cast<const T*>(in),
                                         static_cast<typename scans::Elements<T, A>::Out*>(out)};
    switch (kind) {
      case ScanKind::kSum: return run(scans::Sum<T, A>{elements});
      case ScanKind::kProduct: return run(scans::Product<T, A>{elements});
      case ScanKind::kLogSumExp:
        if constexpr (!std::is_integral_v<T>) run(scans::LogSumExp<T, A>{elements});
    }
  });
}

TANDEM_KERNELS(
    /// Cumulative sums ..., with `reverse` from the end on. out has `dtype` if that is floating, else int64. kLogSumExp
    /// takes floating dtypes only.
    void scan(const KernelContext& context, ScanKind kind, DType dtype, const Extents& sizes, bool reverse,
              const void* in, void* out);

    /// See ops::linear_scan. Floating dtypes.
    void linear_scan(const KernelContext& context, DType dtype, const Extents& sizes, bool reverse, const void* factors,
                     const void* in, void* out);

    /// Cumulative maxima or minima and their positions along the line, the last of equal elements.
    void extremum_scan(const KernelContext& context, DType dtype, const Extents& sizes, bool largest, const void* in,
                       void* values, int64_t* indices);)

}}  // namespace tandem::v0
