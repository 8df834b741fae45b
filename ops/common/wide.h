// Loops compiled for wider vectors than the baseline's. Private to ops/.
#pragma once

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Whether the CPU has AVX-512 and TANDEM_CPU_CAPABILITY does not forbid it. Throws ValueError for unknown values.
bool has_avx512();
/// Whether the CPU has AVX512_BF16, dot products of bfloat16, and TANDEM_CPU_CAPABILITY does not forbid it. Throws as
/// has_avx512.
bool has_avx512_bf16();

#ifdef __clang__  // has no prefer-vector-width
#define TANDEM_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define TANDEM_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

/// loop(), compiled for AVX-512: `loop` and all functions that it calls are inlined here.
template <class F>
[[gnu::target(TANDEM_AVX512), gnu::flatten, gnu::noinline]] void run_avx512(const F& loop) {
  loop();
}
#undef TANDEM_AVX512

/// Runs loop() with AVX-512 if the CPU has it. The result of the loop must not depend on the width of vectors: each
/// iteration computes one element, or the loop adds into a fixed number of partial sums.
template <class F>
inline void run_wide(const F& loop) {
  has_avx512() ? run_avx512(loop) : loop();
}

}}  // namespace tandem::v0
