// Warp and block reductions. For *.cu files. The order of operations is fixed, so the bits depend only on sizes.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kMultiprocessors = 132;  // of the GPU for which numbers of blocks are chosen (H100, H200)

/// Threads of a block that processes a row of n elements, at most kMaxRowThreads.
inline constexpr int kMaxRowThreads = 512;
inline int threads_for_row(int64_t n) { return n <= 2 * kWarp ? kWarp : n <= 1024 ? 128 : kMaxRowThreads; }

/// Reduces the warp's values by f (butterfly); every lane gets the result.
template <class T, class F>
__device__ T warp_reduce(T value, F f) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = f(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Reduces the values of a block by f; every thread gets the result. Must be called by all threads of the block, which
/// are at most 32 full warps. `start` is the neutral element of f.
template <class T, class F>
__device__ T block_reduce(T value, T start, F f) {
  __shared__ T of_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_reduce(value, f);
  if (num_warps == 1) return value;
  __syncthreads();  // an earlier call may still be reading of_warps
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_reduce(lane < num_warps ? of_warps[lane] : start, f);
}

/// Reduces load(i) by f for i = threadIdx.x, threadIdx.x + blockDim.x, ... < n. kAhead values are loaded before the
/// first is used, so that they are in flight together. `start` is the neutral element of f.
template <int kAhead, class T, class Load, class F>
__device__ T fold_ahead(int64_t n, T start, const Load& load, const F& f) {
  T result = start;
  for (int64_t i = threadIdx.x; i < n; i += kAhead * blockDim.x) {
    T loaded[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) loaded[k] = i + k * blockDim.x < n ? load(i + k * blockDim.x) : start;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) result = f(result, loaded[k]);
  }
  return result;
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// Maximum; NaN if either is NaN.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, float>) {
      float larger;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
      return larger;
    }
#endif
    return b > a || b != b ? (a != a ? a : b) : a;
  }
};

}}}  // namespace tandem::v0::cuda
