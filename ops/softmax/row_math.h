// Maximum and sum of exponentials of a row, for softmax, the losses and attention. Private to ops/.
//
// Sums are accumulated in sixteen lanes that are added in a fixed order, so that loops are vectorized and results do
// not depend on threads. Sums of blocks are added in float64, so that errors do not grow with the length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tandem/ops/common/simd.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

inline constexpr int64_t kRowLanes = 16;
inline constexpr int64_t kBlockTerms = 256;  ///< terms per SIMD lane between additions to the float64 sum

/// The compute type of a row of T: float for half types, T otherwise.
template <class T>
using RowCompute = Accumulator<T>;

/// Reduces the lanes by halving.
template <class C, class F>
C reduce_lanes(C* lanes, F f) {
  for (int64_t width = kRowLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = f(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

/// The largest of n >= 1 values; NaN if one is NaN.
template <class T>
RowCompute<T> row_max(const T* x, int64_t n) {
  using C = RowCompute<T>;
  using V = Vec<C>;
  constexpr int64_t kVecs = kRowLanes / kVecSize<C>;
  // Comparisons drop NaN, so `nans` keeps them; their sum is NaN if there was one.
  V maxima[kVecs], nans[kVecs] = {};
  for (V& max : maxima) max = V{} - std::numeric_limits<C>::infinity();
  int64_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (int64_t v = 0; v < kVecs; ++v) {
      const V value = load_vec(x + i + v * kVecSize<C>);
      maxima[v] = value > maxima[v] ? value : maxima[v];
      nans[v] = value == value ? nans[v] : value;
    }
  }
  C max = -std::numeric_limits<C>::infinity(), nan = 0;
  const auto add = [&](C value) {
    max = value > max ? value : max;
    nan = value == value ? nan : value;
  };
  for (int64_t l = 0; l < kRowLanes; ++l) {
    add(maxima[l / kVecSize<C>][l % kVecSize<C>]);
    nan += nans[l / kVecSize<C>][l % kVecSize<C>];
  }
  for (; i < n; ++i) add(static_cast<C>(x[i]));
  return nan == nan ? max : nan;
}

/// The sum of f(i) over [0, n).
template <class C, class F>
C row_sum(int64_t n, F f) {
  double total = 0;
  int64_t i = 0;
  do {
    C lanes[kRowLanes] = {};
    const int64_t end = std::min(n, i + kBlockTerms * kRowLanes);
    for (; i + kRowLanes <= end; i += kRowLanes) {
      for (int64_t l = 0; l < kRowLanes; ++l) lanes[l] += f(i + l);
    }
    for (int64_t l = 0; i < end; ++i, ++l) lanes[l] += f(i);
    total += static_cast<double>(reduce_lanes(lanes, [](C a, C b) { return a + b; }));
  } while (i < n);
  return static_cast<C>(total);
}

}}  // namespace tandem::v0
