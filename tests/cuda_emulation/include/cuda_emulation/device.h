// CUDA device code: keywords, indices, barriers, shuffles and atomics.
//
// A thread of a kernel is a fiber. Operations that may wait, or that the checker must see, are library functions; all
// others are inline and instrumented with the kernel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_emulation/vector_types.h>

#define TANDEM_CUDA_EMULATED 1

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __grid_constant__
#define __shared__ static thread_local  // a host thread runs one block at a time
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

namespace cuda_emulation {

/// The dynamic shared memory of the block, aligned to 128 bytes, of the size passed to the launch.
void* dynamic_shared_memory();

enum class ShuffleKind : uint8_t { kUp, kXor };

/// The bits of the source lane, given by `argument`: a distance or a pattern.
uint64_t shuffle(ShuffleKind kind, unsigned int mask, uint64_t bits, unsigned int argument);

template <typename T>
T shuffled(ShuffleKind kind, unsigned int mask, T value, unsigned int argument) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) <= 8), "a shuffle moves at most 64 bits");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(kind, mask, bits, argument);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cuda_emulation

// Constant for a thread of the kernel: the library writes them, under other names, when it switches threads. They are
// declared const because the compiler does not instrument reads of constants.
extern constinit const thread_local uint3 threadIdx __asm__("tandem_emulated_threadIdx");
extern constinit const thread_local uint3 blockIdx __asm__("tandem_emulated_blockIdx");
extern constinit const thread_local uint3 blockDim __asm__("tandem_emulated_blockDim");
extern constinit const thread_local uint3 gridDim __asm__("tandem_emulated_gridDim");

void __syncthreads();

template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kUp, mask, value, delta);
}
template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int pattern) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kXor, mask, value, static_cast<unsigned int>(pattern));
}

// Atomics return the previous value.
int atomicAdd(int* address, int value);
unsigned int atomicAdd(unsigned int* address, unsigned int value);
int atomicExch(int* address, int value);
int atomicCAS(int* address, int expected, int value);

// A single host thread runs a kernel, in program order.
inline void __threadfence_system() {}

#define TANDEM_EMULATED_MIN_MAX(T)                    \
  constexpr T min(T a, T b) { return b < a ? b : a; } \
  constexpr T max(T a, T b) { return a < b ? b : a; }
TANDEM_EMULATED_MIN_MAX(int)
TANDEM_EMULATED_MIN_MAX(unsigned int)
TANDEM_EMULATED_MIN_MAX(long)
TANDEM_EMULATED_MIN_MAX(unsigned long)
TANDEM_EMULATED_MIN_MAX(long long)
TANDEM_EMULATED_MIN_MAX(unsigned long long)
#undef TANDEM_EMULATED_MIN_MAX
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
