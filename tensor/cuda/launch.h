// Launching and writing kernels. For *.cu files.
//
// A kernel is a __global__ function. The host launches it by launch_kernel, never by <<<>>>, so that the same file
// compiles for GPUs and for the emulation (tests/cuda_emulation). The functions of this file hide the differences
// between the two.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tandem/base/math.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Launches kernel(args...) on the stream. The stream's device must be current.
template <class... Params, class... Args>
void launch_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  TANDEM_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

/// Launches kernel(args...) on the context's device and stream.
template <class... Params, class... Args>
void launch_kernel(const KernelContext& context, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   Args... args) {
  const DeviceGuard guard(context.device);
  launch_kernel(kernel, grid, block, shared_bytes, static_cast<cudaStream_t>(context.stream), args...);
}

inline constexpr int kBlock = 256;  ///< default number of threads per block

/// Number of blocks for `n` work items with one thread each, limited to 2^20: kernels use grid-stride loops.
inline unsigned blocks_for(int64_t n, int threads = kBlock) {
  constexpr int64_t kMaxBlocks = 1 << 20;
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(n, threads), 1, kMaxBlocks));
}

/// Launches kernel(n, args...) on the context's device and stream, with a thread per work item; nothing if n is 0. The
/// kernel's first parameter is int64_t n, and it handles items thread_index(), thread_index() + num_threads(), ... < n.
template <class... Params, class... Args>
void launch_for_each(const KernelContext& context, int64_t n, void (*kernel)(Params...), Args... args) {
  if (n > 0) launch_kernel(context, kernel, blocks_for(n), kBlock, 0, n, args...);
}

/// Dynamic shared memory, of the size passed to the launch.
template <class T>
__device__ T* dynamic_shared() {
#ifdef TANDEM_CUDA_EMULATED
  return static_cast<T*>(cuda_emulation::dynamic_shared_memory());
#else
  extern __shared__ __align__(128) unsigned char tandem_dynamic_shared[];
  return reinterpret_cast<T*>(tandem_dynamic_shared);
#endif
}

/// Index of the calling thread in the grid, and number of threads: for (int64_t i = thread_index(); i < n; i +=
/// num_threads()).
__device__ inline int64_t thread_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t num_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}}}  // namespace tandem::v0::cuda
