// Device functions that kernels call.
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>
#include <tandem/tests/cuda_emulation/kernel_run.h>

namespace cuda_emulation {
namespace {

KernelRun& run(const char* what) {
  if (running_kernel == nullptr) {
    std::fprintf(stderr, "cuda_emulation: %s outside of a kernel\n", what);
    std::abort();
  }
  return *running_kernel;
}

/// Reports an access that is not instrumented to the checker.
template <typename T>
void atomic_access(T* address) {
  const Uninstrumented here;
  if (KernelRun* run = here.checked()) {
    if (reinterpret_cast<uintptr_t>(address) % sizeof(T) != 0) {
      run->fail(cudaErrorMisalignedAddress, "misaligned address of an atomic operation");
    }
    run->access(0, reinterpret_cast<uintptr_t>(address), sizeof(T), kAtomic);
  }
}

/// Host threads may read pinned memory concurrently, so these use real atomics.
template <typename T, typename Function>
T change(T* address, Function function) {
  atomic_access(address);
  T before;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  for (;;) {
    T after = function(before);
    if (__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      return before;
    }
  }
}

int join_barrier(const char* name, Barrier kind, int predicate) {
  const Uninstrumented here;
  return run(name).barrier(kind, predicate);
}

uint64_t vote(WarpOp op, const char* name, unsigned int mask, int predicate) {
  const Uninstrumented here;
  return run(name).warp_operation(op, mask, predicate != 0 ? 1 : 0, 0, 32);
}

}  // namespace

void* dynamic_shared_memory() { return run("dynamic_shared_memory").dynamic_shared(); }

uint64_t shuffle(ShuffleKind kind, unsigned int mask, uint64_t bits, int argument, int width) {
  static constexpr WarpOp kOps[] = {WarpOp::kShuffle, WarpOp::kShuffleUp, WarpOp::kShuffleDown, WarpOp::kShuffleXor};
  const Uninstrumented here;
  return run("a shuffle").warp_operation(kOps[static_cast<int>(kind)], mask, bits, argument, width);
}

unsigned int reduce(ReduceKind kind, unsigned int mask, unsigned int value) {
  static constexpr WarpOp kOps[] = {WarpOp::kAdd, WarpOp::kMin, WarpOp::kMax, WarpOp::kAnd, WarpOp::kOr, WarpOp::kXor};
  const Uninstrumented here;
  return static_cast<unsigned int>(run("a reduction").warp_operation(kOps[static_cast<int>(kind)], mask, value, 0, 32));
}

int reduce(ReduceKind kind, unsigned int mask, int value) {
  const WarpOp op = kind == ReduceKind::kMin   ? WarpOp::kSignedMin
                    : kind == ReduceKind::kMax ? WarpOp::kSignedMax
                                               : WarpOp::kAdd;
  const Uninstrumented here;
  return static_cast<int>(run("a reduction").warp_operation(op, mask, static_cast<unsigned int>(value), 0, 32));
}

}  // namespace cuda_emulation

using cuda_emulation::Barrier;
using cuda_emulation::change;
using cuda_emulation::vote;
using cuda_emulation::WarpOp;

void __syncthreads() { cuda_emulation::join_barrier("__syncthreads", Barrier::kSync, 0); }
int __syncthreads_or(int predicate) {
  return cuda_emulation::join_barrier("__syncthreads_or", Barrier::kOr, predicate);
}
int __syncthreads_and(int predicate) {
  return cuda_emulation::join_barrier("__syncthreads_and", Barrier::kAnd, predicate);
}
int __syncthreads_count(int predicate) {
  return cuda_emulation::join_barrier("__syncthreads_count", Barrier::kCount, predicate);
}
void __syncwarp(unsigned int mask) { vote(WarpOp::kSync, "__syncwarp", mask, 0); }
unsigned int __ballot_sync(unsigned int mask, int predicate) {
  return static_cast<unsigned int>(vote(WarpOp::kBallot, "__ballot_sync", mask, predicate));
}
int __any_sync(unsigned int mask, int predicate) {
  return static_cast<int>(vote(WarpOp::kAny, "__any_sync", mask, predicate));
}
int __all_sync(unsigned int mask, int predicate) {
  return static_cast<int>(vote(WarpOp::kAll, "__all_sync", mask, predicate));
}
unsigned int __activemask() {
  const cuda_emulation::Uninstrumented here;
  cuda_emulation::run("__activemask")
      .fail(cudaErrorLaunchFailure, "__activemask: which lanes run together is not defined");
}
void __trap() {
  const cuda_emulation::Uninstrumented here;
  cuda_emulation::run("__trap").fail(cudaErrorLaunchFailure, "__trap");
}

unsigned int __brev(unsigned int x) {
  unsigned int result = 0;
  for (int i = 0; i < 32; ++i) {
    result |= (x >> i & 1U) << (31 - i);
  }
  return result;
}
unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 |
         __brev(static_cast<unsigned int>(x >> 32));
}
unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned int which = selector >> (4 * i) & 0xFU;
    unsigned int byte = static_cast<unsigned int>(bytes >> (8 * (which & 7U))) & 0xFFU;
    if ((which & 8U) != 0) {  // the sign bit, in all bits
      byte = (byte & 0x80U) != 0 ? 0xFFU : 0U;
    }
    result |= byte << (8 * i);
  }
  return result;
}

#define TANDEM_ATOMIC(name, T, expression)                                         \
  T name(T* address, T value) {                                                    \
    return change(address, [value](T old) { return static_cast<T>(expression); }); \
  }
#define TANDEM_INTEGER_ATOMICS(T)                        \
  TANDEM_ATOMIC(atomicMin, T, value < old ? value : old) \
  TANDEM_ATOMIC(atomicMax, T, old < value ? value : old) \
  TANDEM_ATOMIC(atomicAnd, T, old& value)                \
  TANDEM_ATOMIC(atomicOr, T, old | value)                \
  TANDEM_ATOMIC(atomicXor, T, old ^ value)
TANDEM_INTEGER_ATOMICS(int)
TANDEM_INTEGER_ATOMICS(unsigned int)
TANDEM_INTEGER_ATOMICS(unsigned long long)
TANDEM_ATOMIC(atomicMin, long long, value < old ? value : old)
TANDEM_ATOMIC(atomicMax, long long, old < value ? value : old)
TANDEM_ATOMIC(atomicAdd, int, static_cast<unsigned int>(old) + static_cast<unsigned int>(value))
TANDEM_ATOMIC(atomicAdd, unsigned int, old + value)
TANDEM_ATOMIC(atomicAdd, unsigned long long, old + value)
TANDEM_ATOMIC(atomicAdd, float, old + value)
TANDEM_ATOMIC(atomicAdd, double, old + value)
TANDEM_ATOMIC(atomicSub, int, static_cast<unsigned int>(old) - static_cast<unsigned int>(value))
TANDEM_ATOMIC(atomicSub, unsigned int, old - value)
#undef TANDEM_INTEGER_ATOMICS
#undef TANDEM_ATOMIC

#define TANDEM_EXCHANGE(T)                                \
  T atomicExch(T* address, T value) {                     \
    return change(address, [value](T) { return value; }); \
  }
TANDEM_EXCHANGE(int)
TANDEM_EXCHANGE(unsigned int)
TANDEM_EXCHANGE(unsigned long long)
TANDEM_EXCHANGE(float)
#undef TANDEM_EXCHANGE

#define TANDEM_COMPARE(T)                                                                       \
  T atomicCAS(T* address, T expected, T value) {                                                \
    return change(address, [expected, value](T old) { return old == expected ? value : old; }); \
  }
TANDEM_COMPARE(int)
TANDEM_COMPARE(unsigned int)
TANDEM_COMPARE(unsigned long long)
TANDEM_COMPARE(unsigned short)
#undef TANDEM_COMPARE
