// SIMD vectors for inner loops that the compiler does not vectorize by itself. Private to ops/.
//
// Vec uses the compiler's vector extension with 32 bytes of float or double, the width of AVX2, the baseline. The code
// and the results are the same on every machine.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

template <class C>
struct VecTypes;
template <>
struct VecTypes<float> {
  typedef float Vector __attribute__((vector_size(32)));
  typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Mask __attribute__((vector_size(32)));
};
template <>
struct VecTypes<double> {
  typedef double Vector __attribute__((vector_size(32)));
  typedef double Unaligned __attribute__((vector_size(32), aligned(8), may_alias));
  typedef int64_t Mask __attribute__((vector_size(32)));
};

/// A vector, and the mask of a comparison: all bits of a lane are set where it is true.
template <class C>
using Vec = typename VecTypes<C>::Vector;
template <class C>
using VecMask = typename VecTypes<C>::Mask;
template <class C>
inline constexpr int64_t kVecSize = 32 / sizeof(C);

/// Loads kVecSize elements of type T from any address, converted to the accumulation type.
template <class T>
inline __attribute__((always_inline)) Vec<Accumulator<T>> load_vec(const T* from) {
  using C = Accumulator<T>;
  if constexpr (std::is_same_v<T, C>) {
    return *reinterpret_cast<const typename VecTypes<C>::Unaligned*>(from);
  } else {
    Vec<C> result;
    for (int64_t l = 0; l < kVecSize<C>; ++l) result[l] = static_cast<C>(from[l]);
    return result;
  }
}

template <class T>
inline __attribute__((always_inline)) void store_vec(T* to, Vec<Accumulator<T>> value) {
  using C = Accumulator<T>;
  if constexpr (std::is_same_v<T, C>) {
    *reinterpret_cast<typename VecTypes<C>::Unaligned*>(to) = value;
  } else {
    for (int64_t l = 0; l < kVecSize<C>; ++l) to[l] = static_cast<T>(value[l]);
  }
}

// Helpers for loops whose body is instantiated with V = Vec<C>, and with V = C for the remaining elements:

template <class V>
inline constexpr bool kIsVec = !std::is_arithmetic_v<V>;

template <class V, class T>
inline __attribute__((always_inline)) V load_as(const T* from) {
  if constexpr (kIsVec<V>) {
    return load_vec(from);
  } else {
    return static_cast<V>(*from);
  }
}
template <class V, class T>
inline __attribute__((always_inline)) void store_as(T* to, V value) {
  if constexpr (kIsVec<V>) {
    store_vec(to, value);
  } else {
    *to = static_cast<T>(value);
  }
}
/// A vector with all lanes equal to `value`.
template <class V, class C>
inline __attribute__((always_inline)) V broadcast(C value) {
  if constexpr (kIsVec<V>) {
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

/// Calls f.operator()<Vec<C>>(i) for all full vectors in [0, n), then f.operator()<C>(i) for the remaining elements.
template <class C, class F>
inline __attribute__((always_inline)) void for_vecs(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kVecSize<C> <= n; i += kVecSize<C>) f.template operator()<Vec<C>>(i);
  for (; i < n; ++i) f.template operator()<C>(i);
}

/// The sum of the lanes, by halving.
inline __attribute__((always_inline)) float sum_vec(Vec<float> v) {
  typedef float Four __attribute__((vector_size(16)));
  const Four low = __builtin_shufflevector(v, v, 0, 1, 2, 3), high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const Four four = low + high;
  const Four two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}
inline __attribute__((always_inline)) double sum_vec(Vec<double> v) { return (v[0] + v[2]) + (v[1] + v[3]); }

}}  // namespace tandem::v0
