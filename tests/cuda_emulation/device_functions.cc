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

}  // namespace

void* dynamic_shared_memory() { return run("dynamic_shared_memory").dynamic_shared(); }

uint64_t shuffle(ShuffleKind kind, unsigned int mask, uint64_t bits, unsigned int argument) {
  const Uninstrumented here;
  return run("a shuffle").shuffle(kind, mask, bits, argument);
}

}  // namespace cuda_emulation

using cuda_emulation::change;

void __syncthreads() {
  const cuda_emulation::Uninstrumented here;
  cuda_emulation::run("__syncthreads").barrier();
}

unsigned int atomicAdd(unsigned int* address, unsigned int value) {
  return change(address, [value](unsigned int old) { return old + value; });
}
int atomicAdd(int* address, int value) {
  return static_cast<int>(atomicAdd(reinterpret_cast<unsigned int*>(address), static_cast<unsigned int>(value)));
}
int atomicExch(int* address, int value) {
  return change(address, [value](int) { return value; });
}
int atomicCAS(int* address, int expected, int value) {
  return change(address, [expected, value](int old) { return old == expected ? value : old; });
}
