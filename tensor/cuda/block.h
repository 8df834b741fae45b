// What the threads of a warp or a block do together.  For *.cu files.  Orders are fixed, so bits depend on sizes alone.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Threads for a block that has a row of n elements, at most kMostRowThreads.
inline constexpr int kMostRowThreads = 512;
inline int threads_for_row(int64_t n) { return n <= 2 * kWarp ? kWarp : n <= 1024 ? 128 : kMostRowThreads; }

/// f over the warp's values, by halves; every lane gets the result.
template <class T, class F>
__device__ T warp_reduce(T value, F f) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = f(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// f over the values of a block whose threads are full warps, at most 32 of them; every thread gets the result.  All of the
/// block's threads call it.  `start`: what changes nothing.
template <class T, class F>
__device__ T block_reduce(T value, T start, F f) {
  __shared__ T of_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_reduce(value, f);
  if (num_warps == 1) return value;
  __syncthreads();  // of an earlier call everything was read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_reduce(lane < num_warps ? of_warps[lane] : start, f);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger, or NaN where one is.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? (a != a ? a : b) : a;
  }
};

}}}  // namespace tandem::v0::cuda
