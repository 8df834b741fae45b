// Elements that a thread loads and stores by wide accesses. For *.cu files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// n consecutive elements, accessed by instructions of at most 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T values[n];
};

/// The first `count` elements from `from` on, at most n; the rest are 0.
template <int n, class T>
__device__ Pack<T, n> load_pack(const T* from, int64_t count) {
  if (count >= n) return *reinterpret_cast<const Pack<T, n>*>(from);
  Pack<T, n> pack = {};
  for (int v = 0; v < count; ++v) pack.values[v] = from[v];
  return pack;
}

/// Stores the first `count` elements of the pack, at most n.
template <int n, class T>
__device__ void store_pack(T* to, const Pack<T, n>& pack, int64_t count) {
  if (count >= n) {
    *reinterpret_cast<Pack<T, n>*>(to) = pack;
    return;
  }
  for (int v = 0; v < count; ++v) to[v] = pack.values[v];
}

/// Whether packs can begin at p.
TANDEM_HOST_DEVICE inline bool is_aligned_for_packs(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Whether all rows of `row_bytes` bytes that begin at `tensors` begin at multiples of 16 bytes.
inline bool are_aligned_for_packs(int64_t row_bytes, std::initializer_list<const void*> tensors) {
  return row_bytes % 16 == 0 && std::all_of(tensors.begin(), tensors.end(), is_aligned_for_packs);
}

/// Calls f(std::integral_constant<int, k>()) for rows of `size` elements that begin at `tensors`. k is the number of
/// elements in 16 bytes, or 1 if not all rows begin at multiples of 16 bytes.
template <class T, class F>
void visit_pack(int64_t size, std::initializer_list<const void*> tensors, const F& f) {
  constexpr int kSize = static_cast<int>(sizeof(T));
  if (are_aligned_for_packs(size * kSize, tensors)) {
    f(std::integral_constant<int, 16 / kSize>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

}}}  // namespace tandem::v0::cuda
