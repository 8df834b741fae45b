// GEMM micro-kernels for AVX2 and FMA, the baseline: tiles of 6 x 16, whose sums use 12 of 16 registers.
#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace {

struct V {
  using Element = float;
  using Vector = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float value) { return _mm256_set1_ps(value); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector value) { _mm256_storeu_ps(p, value); }
  static __m256i first(long n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_some(const float* p, long n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_some(float* p, Vector value, long n) { _mm256_maskstore_ps(p, first(n), value); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector dot(Vector a, Vector b, Vector sum) { return fma(a, b, sum); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  /// Keeps NaN: the instruction returns its second operand if one is NaN.
  static Vector positive(Vector a) { return _mm256_max_ps(zero(), a); }
};

}}}  // namespace tandem::v0

#include <tandem/ops/matmul/gemm_tile_inl.h>

namespace tandem { inline namespace v0 {

const GemmKernels kGemmAvx2 = {{"avx2", V::kRows, kColumns, solve, pack_right, pack_left}, store_transposed};

}}  // namespace tandem::v0
