// CUDA device code: keywords, indices, barriers, warp operations, atomics and intrinsics.
//
// A thread of a kernel is a fiber. Operations that may wait, or that the checker must see, are library functions; all
// others are inline and instrumented with the kernel.
#pragma once

#include <bit>
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
#define __constant__
#define __grid_constant__
#define __shared__ static thread_local  // a host thread runs one block at a time
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

namespace cuda_emulation {

/// The dynamic shared memory of the block, aligned to 128 bytes, of the size passed to the launch.
void* dynamic_shared_memory();

enum class ShuffleKind { kIndex, kUp, kDown, kXor };

/// The bits of the source lane, given by `argument` (an index, a distance or a pattern), within segments of `width`
/// lanes.
uint64_t shuffle(ShuffleKind kind, unsigned int mask, uint64_t bits, int argument, int width);

template <typename T>
T shuffled(ShuffleKind kind, unsigned int mask, T value, int argument, int width) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) <= 8), "a shuffle moves at most 64 bits");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(kind, mask, bits, argument, width);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

enum class ReduceKind { kAdd, kMin, kMax, kAnd, kOr, kXor };
unsigned int reduce(ReduceKind kind, unsigned int mask, unsigned int value);
int reduce(ReduceKind kind, unsigned int mask, int value);

}  // namespace cuda_emulation

// Constant for a thread of the kernel: the library writes them, under other names, when it switches threads. They are
// declared const because the compiler does not instrument reads of constants.
extern constinit const thread_local uint3 threadIdx __asm__("tandem_emulated_threadIdx");
extern constinit const thread_local uint3 blockIdx __asm__("tandem_emulated_blockIdx");
extern constinit const thread_local uint3 blockDim __asm__("tandem_emulated_blockDim");
extern constinit const thread_local uint3 gridDim __asm__("tandem_emulated_gridDim");
inline constexpr int warpSize = 32;

void __syncthreads();
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);
void __syncwarp(unsigned int mask = 0xffffffffu);
unsigned int __ballot_sync(unsigned int mask, int predicate);
int __any_sync(unsigned int mask, int predicate);
int __all_sync(unsigned int mask, int predicate);
unsigned int __activemask();  // rejected: meaningless, because lanes run sequentially
[[noreturn]] void __trap();

template <typename T>
T __shfl_sync(unsigned int mask, T value, int lane, int width = 32) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kIndex, mask, value, lane, width);
}
template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kUp, mask, value, static_cast<int>(delta), width);
}
template <typename T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kDown, mask, value, static_cast<int>(delta), width);
}
template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int pattern, int width = 32) {
  return cuda_emulation::shuffled(cuda_emulation::ShuffleKind::kXor, mask, value, pattern, width);
}

inline unsigned int __reduce_add_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kAdd, mask, value);
}
inline int __reduce_add_sync(unsigned int mask, int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kAdd, mask, value);
}
inline unsigned int __reduce_min_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kMin, mask, value);
}
inline int __reduce_min_sync(unsigned int mask, int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kMin, mask, value);
}
inline unsigned int __reduce_max_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kMax, mask, value);
}
inline int __reduce_max_sync(unsigned int mask, int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kMax, mask, value);
}
inline unsigned int __reduce_and_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kAnd, mask, value);
}
inline unsigned int __reduce_or_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kOr, mask, value);
}
inline unsigned int __reduce_xor_sync(unsigned int mask, unsigned int value) {
  return cuda_emulation::reduce(cuda_emulation::ReduceKind::kXor, mask, value);
}

// Atomics return the previous value.
#define TANDEM_EMULATED_ATOMIC(name, T) T name(T* address, T value);
#define TANDEM_EMULATED_ATOMICS(name)        \
  TANDEM_EMULATED_ATOMIC(name, int)          \
  TANDEM_EMULATED_ATOMIC(name, unsigned int) \
  TANDEM_EMULATED_ATOMIC(name, unsigned long long)
TANDEM_EMULATED_ATOMICS(atomicAdd)
TANDEM_EMULATED_ATOMICS(atomicMin)
TANDEM_EMULATED_ATOMICS(atomicMax)
TANDEM_EMULATED_ATOMICS(atomicAnd)
TANDEM_EMULATED_ATOMICS(atomicOr)
TANDEM_EMULATED_ATOMICS(atomicXor)
TANDEM_EMULATED_ATOMICS(atomicExch)
TANDEM_EMULATED_ATOMIC(atomicAdd, float)
TANDEM_EMULATED_ATOMIC(atomicAdd, double)
TANDEM_EMULATED_ATOMIC(atomicExch, float)
TANDEM_EMULATED_ATOMIC(atomicSub, int)
TANDEM_EMULATED_ATOMIC(atomicSub, unsigned int)
TANDEM_EMULATED_ATOMIC(atomicMin, long long)
TANDEM_EMULATED_ATOMIC(atomicMax, long long)
#undef TANDEM_EMULATED_ATOMICS
#undef TANDEM_EMULATED_ATOMIC
int atomicCAS(int* address, int expected, int value);
unsigned int atomicCAS(unsigned int* address, unsigned int expected, unsigned int value);
unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected, unsigned long long value);
unsigned short atomicCAS(unsigned short* address, unsigned short expected, unsigned short value);

// A single host thread runs a kernel, in program order.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldca(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline T __ldlu(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcv(const T* p) {
  return *p;
}
template <typename T>
inline void __stwb(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stcg(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stwt(T* p, T value) {
  *p = value;
}

// Bits.
inline int __popc(unsigned int x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned int>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
unsigned int __brev(unsigned int x);
unsigned long long __brevll(unsigned long long x);
inline int __mul24(int a, int b) {
  return static_cast<int>((static_cast<int64_t>(a) << 40 >> 40) * (static_cast<int64_t>(b) << 40 >> 40));
}
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  return static_cast<unsigned int>(((static_cast<uint64_t>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return static_cast<unsigned int>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector);
inline unsigned int __float_as_uint(float x) { return std::bit_cast<unsigned int>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned int x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Arithmetic with explicit rounding, and fast functions, which are exact here.
inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __fsqrt_rn(float a) { return ::sqrtf(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / ::sqrt(static_cast<double>(a))); }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return ::expf(x); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __sinf(float x) { return ::sinf(x); }
inline float __cosf(float x) { return ::cosf(x); }
inline float __powf(float x, float y) { return ::powf(x, y); }
inline float __saturatef(float x) { return ::fminf(::fmaxf(x, 0.0F), 1.0F); }
inline float rsqrtf(float x) { return __frsqrt_rn(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline int __float2int_rn(float x) { return static_cast<int>(::nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

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
