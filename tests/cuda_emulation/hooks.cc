// The functions that compilers call for every memory access with -fsanitize=thread. Programs with CUDA code are linked
// without ThreadSanitizer and use these.
#ifndef __SANITIZE_THREAD__

#include <cstddef>
#include <cstdint>

#include <tandem/tests/cuda_emulation/kernel_run.h>

namespace cuda_emulation { namespace {

/// `pc`: return address of the hook, which identifies the instruction; unused for atomics.
void access(const volatile void* p, size_t num_bytes, AccessKind kind, const void* pc = nullptr) {
  if (KernelRun* run = checked_kernel) {
    checked_kernel = nullptr;
    run->access(reinterpret_cast<uintptr_t>(pc), reinterpret_cast<uintptr_t>(p), num_bytes, kind);
    checked_kernel = run;
  }
}

// The compiler assumes an aligned address; a device faults for a misaligned one.
template <size_t kBytes>
void aligned_access(const volatile void* p, AccessKind kind, const void* pc) {
  if (KernelRun* run = checked_kernel) {
    checked_kernel = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(p);
    if (address % kBytes != 0) {
      run->fail(cudaErrorMisalignedAddress,
                "misaligned address: " + std::to_string(kBytes) + " bytes at " + run->memory().describe(address));
    }
    run->access(reinterpret_cast<uintptr_t>(pc), address, kBytes, kind);
    checked_kernel = run;
  }
}

}}  // namespace cuda_emulation

using cuda_emulation::access;
using cuda_emulation::aligned_access;
using cuda_emulation::kAtomic;
using cuda_emulation::kPlainRead;
using cuda_emulation::kPlainWrite;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define TANDEM_PC __builtin_return_address(0)
#define TANDEM_HOOKS(n)                                                                    \
  void __tsan_read##n(void* p) { aligned_access<n>(p, kPlainRead, TANDEM_PC); }            \
  void __tsan_write##n(void* p) { aligned_access<n>(p, kPlainWrite, TANDEM_PC); }          \
  void __tsan_volatile_read##n(void* p) { aligned_access<n>(p, kPlainRead, TANDEM_PC); }   \
  void __tsan_volatile_write##n(void* p) { aligned_access<n>(p, kPlainWrite, TANDEM_PC); } \
  void __tsan_unaligned_read##n(void* p) { access(p, n, kPlainRead, TANDEM_PC); }          \
  void __tsan_unaligned_write##n(void* p) { access(p, n, kPlainWrite, TANDEM_PC); }        \
  void __tsan_unaligned_volatile_read##n(void* p) { access(p, n, kPlainRead, TANDEM_PC); } \
  void __tsan_unaligned_volatile_write##n(void* p) { access(p, n, kPlainWrite, TANDEM_PC); }
TANDEM_HOOKS(1)
TANDEM_HOOKS(2)
TANDEM_HOOKS(4)
TANDEM_HOOKS(8)
TANDEM_HOOKS(16)
#undef TANDEM_HOOKS

void __tsan_read_range(void* p, size_t n) { access(p, n, kPlainRead, TANDEM_PC); }
void __tsan_write_range(void* p, size_t n) { access(p, n, kPlainWrite, TANDEM_PC); }
void __tsan_vptr_read(void** p) { access(p, sizeof(void*), kPlainRead, TANDEM_PC); }
void __tsan_vptr_update(void** p, void*) { access(p, sizeof(void*), kPlainWrite, TANDEM_PC); }

// C++ atomic operations become calls, also in host code of instrumented files.
#define TANDEM_ATOMICS(bits, T)                                                                        \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                             \
    access(p, sizeof(T), kAtomic);                                                                     \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                    \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                                      \
    access(p, sizeof(T), kAtomic);                                                                     \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                    \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                                      \
    access(p, sizeof(T), kAtomic);                                                                     \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T value, int, int) {   \
    access(p, sizeof(T), kAtomic);                                                                     \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T value, int, int) {     \
    access(p, sizeof(T), kAtomic);                                                                     \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                    \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T value, int, int) {         \
    access(p, sizeof(T), kAtomic);                                                                     \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                                   \
  }
#define TANDEM_FETCH(bits, T, op)                                   \
  T __tsan_atomic##bits##_fetch_##op(volatile T* p, T value, int) { \
    access(p, sizeof(T), kAtomic);                                  \
    return __atomic_fetch_##op(p, value, __ATOMIC_SEQ_CST);         \
  }
#define TANDEM_ALL_ATOMICS(bits, T) \
  TANDEM_ATOMICS(bits, T)           \
  TANDEM_FETCH(bits, T, add)        \
  TANDEM_FETCH(bits, T, sub)        \
  TANDEM_FETCH(bits, T, and)        \
  TANDEM_FETCH(bits, T, or)         \
  TANDEM_FETCH(bits, T, xor)        \
  TANDEM_FETCH(bits, T, nand)
TANDEM_ALL_ATOMICS(8, uint8_t)
TANDEM_ALL_ATOMICS(16, uint16_t)
TANDEM_ALL_ATOMICS(32, uint32_t)
TANDEM_ALL_ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"

#endif  // __SANITIZE_THREAD__
