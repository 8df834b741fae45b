// Mathematics of a row of numbers that softmax and the losses share: maximum, sum of exponentials.  Private to ops/.
//
// Sums run over sixteen lanes that are joined in a fixed order, so that they become vector code and never depend on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

inline constexpr int64_t kRowLanes = 16;

/// The type in which a row of T is computed: float for half types, T otherwise.
template <class T>
using RowCompute = Accumulator<T>;

/// Joins lanes by halves.
template <class C, class F>
C join_lanes(C* lanes, F f) {
  for (int64_t width = kRowLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = f(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

/// The largest of n >= 1 values; NaN if one is.
template <class T>
RowCompute<T> row_max(const T* x, int64_t n) {
  using C = RowCompute<T>;
  // A NaN never wins a comparison, so whether there was one is kept beside: it survives in the sum of differences.
  C lanes[kRowLanes], nans[kRowLanes] = {};
  for (int64_t l = 0; l < kRowLanes; ++l) lanes[l] = -std::numeric_limits<C>::infinity();
  int64_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (int64_t l = 0; l < kRowLanes; ++l) {
      const C value = static_cast<C>(x[i + l]);
      lanes[l] = value > lanes[l] ? value : lanes[l];
      nans[l] = value == value ? nans[l] : value;
    }
  }
  for (int64_t l = 0; i < n; ++i, ++l) {
    const C value = static_cast<C>(x[i]);
    lanes[l] = value > lanes[l] ? value : lanes[l];
    nans[l] = value == value ? nans[l] : value;
  }
  const C nan = join_lanes(nans, [](C a, C b) { return a + b; });
  const C max = join_lanes(lanes, [](C a, C b) { return b > a ? b : a; });
  return nan == nan ? max : nan;
}

/// sum of f(i) over [0, n).
template <class C, class F>
C row_sum(int64_t n, F f) {
  C lanes[kRowLanes] = {};
  int64_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (int64_t l = 0; l < kRowLanes; ++l) lanes[l] += f(i + l);
  }
  for (int64_t l = 0; i < n; ++i, ++l) lanes[l] += f(i);
  return join_lanes(lanes, [](C a, C b) { return a + b; });
}

}}  // namespace tandem::v0
