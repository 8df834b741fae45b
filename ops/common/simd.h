// Vectors of numbers for innermost loops that the compiler does not find by itself.  Private to ops/.
//
// They are the compiler's vector extension, so the code is the same on every machine: 32 bytes of float or double, as wide as the
// registers of the baseline.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

template <class C>
struct LaneTypes;
template <>
struct LaneTypes<float> {
  typedef float Vector __attribute__((vector_size(32)));
  typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Mask __attribute__((vector_size(32)));
};
template <>
struct LaneTypes<double> {
  typedef double Vector __attribute__((vector_size(32)));
  typedef double Unaligned __attribute__((vector_size(32), aligned(8), may_alias));
  typedef int64_t Mask __attribute__((vector_size(32)));
};

/// Numbers side by side, and what comparing them gives: all bits set where it holds.
template <class C>
using Lanes = typename LaneTypes<C>::Vector;
template <class C>
using LaneMask = typename LaneTypes<C>::Mask;
template <class C>
inline constexpr int64_t kLaneCount = 32 / sizeof(C);

/// T's at any address as numbers of the type they are computed in.
template <class T>
inline __attribute__((always_inline)) Lanes<Accumulator<T>> load_lanes(const T* from) {
  using C = Accumulator<T>;
  if constexpr (std::is_same_v<T, C>) {
    return *reinterpret_cast<const typename LaneTypes<C>::Unaligned*>(from);
  } else {
    Lanes<C> result;
    for (int64_t l = 0; l < kLaneCount<C>; ++l) result[l] = static_cast<C>(from[l]);
    return result;
  }
}

template <class T>
inline __attribute__((always_inline)) void store_lanes(T* to, Lanes<Accumulator<T>> value) {
  using C = Accumulator<T>;
  if constexpr (std::is_same_v<T, C>) {
    *reinterpret_cast<typename LaneTypes<C>::Unaligned*>(to) = value;
  } else {
    for (int64_t l = 0; l < kLaneCount<C>; ++l) to[l] = static_cast<T>(value[l]);
  }
}

// Loops whose body is written once for V = Lanes<C>, and for V = C, what is left at the end:

template <class V>
inline constexpr bool kIsLanes = !std::is_arithmetic_v<V>;

template <class V, class T>
inline __attribute__((always_inline)) V load_as(const T* from) {
  if constexpr (kIsLanes<V>) {
    return load_lanes(from);
  } else {
    return static_cast<V>(*from);
  }
}
template <class V, class T>
inline __attribute__((always_inline)) void store_as(T* to, V value) {
  if constexpr (kIsLanes<V>) {
    store_lanes(to, value);
  } else {
    *to = static_cast<T>(value);
  }
}
/// A number, in all lanes.
template <class V, class C>
inline __attribute__((always_inline)) V spread(C value) {
  if constexpr (kIsLanes<V>) {
    return value - V{};
  } else {
    return value;
  }
}
/// a * b + c, rounded once.
inline float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class V>
inline __attribute__((always_inline)) V fma_of(V a, V b, V c) {
  V result;
  for (size_t l = 0; l < sizeof(V) / sizeof(a[0]); ++l) result[l] = fma_of(a[l], b[l], c[l]);
  return result;
}

/// Calls f.operator()<Lanes<C>>(i) for as much of [0, n) as lanes fill, then f.operator()<C>(i) for the rest.
template <class C, class F>
inline __attribute__((always_inline)) void for_lanes(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLaneCount<C> <= n; i += kLaneCount<C>) f.template operator()<Lanes<C>>(i);
  for (; i < n; ++i) f.template operator()<C>(i);
}

/// Their sum, joined by halves.
inline __attribute__((always_inline)) float sum_lanes(Lanes<float> v) {
  typedef float Four __attribute__((vector_size(16)));
  const Four low = __builtin_shufflevector(v, v, 0, 1, 2, 3), high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const Four four = low + high;
  const Four two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}
inline __attribute__((always_inline)) double sum_lanes(Lanes<double> v) { return (v[0] + v[2]) + (v[1] + v[3]); }

}}  // namespace tandem::v0
