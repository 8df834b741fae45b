#include <tandem/tensor/copy_nontemporal_avx2.h>

#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace primitives {

void copy_nontemporal_avx2(std::byte* out, const std::byte* in, size_t num_bytes) {
  const size_t whole = num_bytes / 64 * 64;
  for (size_t i = 0; i < whole; i += 64) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i + 32), high);
  }
  for (size_t i = whole; i < num_bytes; ++i) out[i] = in[i];
  _mm_sfence();
}

}}}  // namespace tandem::v0::primitives
