#include <tandem/tensor/convert_float16_avx2.h>

#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace primitives {

namespace {

constexpr size_t kStep = 8;  // elements in a float vector

}  // namespace

void to_float16_avx2(const float* src, uint16_t* out, size_t n) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
  for (; i < n; ++i) out[i] = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void from_float16_avx2(const uint16_t* src, float* out, size_t n) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  }
  for (; i < n; ++i) out[i] = _cvtsh_ss(src[i]);
}

}}}  // namespace tandem::v0::primitives
