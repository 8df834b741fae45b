// Rows that a warp keeps in registers. For *.cu files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Calls f(k, index of the first element) for the packs of one of the threads that share a row.
template <int kPacks, int kPack, class F>
__device__ void for_each_pack(unsigned thread, unsigned threads, int64_t n, F f) {
#pragma unroll
  for (unsigned k = 0; k < kPacks; ++k) {
    const int64_t begin = static_cast<int64_t>(k * threads + thread) * kPack;
    if (begin < n) f(static_cast<int>(k), begin);
  }
}

/// The elements of a row that a thread keeps in registers: packs, at distances of a warp.
template <class T, int kPacks>
struct OwnElements {
  static constexpr int kPack = static_cast<int>(16 / sizeof(T));
  Pack<T, kPack> packs[kPacks];

  __device__ OwnElements(const T* row, int64_t n) {
    for_each(n, [&](int k, int64_t begin) { packs[k] = load_pack<kPack>(row + begin, kPack); });
  }
  template <class F>
  static __device__ void for_each(int64_t n, F f) {
    for_each_pack<kPacks, kPack>(threadIdx.x % kWarp, kWarp, n, f);
  }
};

/// Calls f with the number of packs per thread of a warp, as std::integral_constant, or 0 if a block must process each
/// row: if rows are too long for registers, or do not begin at multiples of 16 bytes, or are float64.
template <class T, class F>
void visit_row_packs(int64_t n, std::initializer_list<const void*> data, const F& f) {
  if constexpr (sizeof(T) <= 4) {
    constexpr int64_t kPack = 16 / sizeof(T), kElements = kWarp * kPack;
    if (n % kPack == 0 && n <= 8 * kElements && std::all_of(data.begin(), data.end(), is_aligned_for_packs)) {
      return n <= 4 * kElements ? f(std::integral_constant<int, 4>()) : f(std::integral_constant<int, 8>());
    }
  }
  f(std::integral_constant<int, 0>());
}

/// Threads of a block whose warps process a row each.
inline constexpr int kRowsPerBlock = 4, kRowWarpThreads = kRowsPerBlock * kWarp;

}}}  // namespace tandem::v0::cuda
