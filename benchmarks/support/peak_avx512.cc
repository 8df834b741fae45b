#include <tandem/benchmarks/support/peak_avx512.h>

#include <immintrin.h>

namespace tandem::benchmarks {

double fma_rounds_avx512(int64_t rounds) {
  constexpr int kChains = 12;
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.9999f);
  const __m512 term = _mm512_set1_ps(0.0001f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  volatile float kept = 0;  // keeps the compiler from removing the loop
  for (int i = 0; i < kChains; ++i) kept = kept + _mm512_cvtss_f32(sums[i]);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace tandem::benchmarks
