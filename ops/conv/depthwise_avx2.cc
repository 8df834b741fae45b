// Kernels of depthwise convolutions for AVX2 and FMA, the baseline.
#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace {

struct Floats {
  using Number = float;
  using Vector = __m256;
  static constexpr int kLanes = 8;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector value) { _mm256_storeu_ps(p, value); }
  static __m256i first(long n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_some(const float* p, long n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_some(float* p, Vector value, long n) { _mm256_maskstore_ps(p, first(n), value); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  /// Keeps NaN: the instruction returns its second operand if one is NaN.
  static Vector positive(Vector a) { return _mm256_max_ps(zero(), a); }
  template <int D>
  static Vector load_members(const float* p, int i) {
    if constexpr (D == kLanes) {
      return _mm256_broadcast_ss(p + i);
    } else {
      const __m256i lanes =
          D == 2 ? _mm256_setr_epi32(0, 0, 2, 2, 4, 4, 6, 6) : _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
      return _mm256_permutevar_ps(load(p), _mm256_add_epi32(lanes, _mm256_set1_epi32(i)));
    }
  }
};

struct Doubles {
  using Number = double;
  using Vector = __m256d;
  static constexpr int kLanes = 4;

  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector value) { _mm256_storeu_pd(p, value); }
  static __m256i first(long n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
  static Vector load_some(const double* p, long n) { return _mm256_maskload_pd(p, first(n)); }
  static void store_some(double* p, Vector value, long n) { _mm256_maskstore_pd(p, first(n), value); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static Vector positive(Vector a) { return _mm256_max_pd(zero(), a); }
};

}}}  // namespace tandem::v0

#include <tandem/ops/conv/depthwise_row_inl.h>

namespace tandem { inline namespace v0 {

const DepthwiseKernels<float> kDepthwiseAvx2 = {sum_any_width<Floats>, add_gradients_of_any_width<Floats>};
const DepthwiseKernels<double> kDepthwiseDouble = {sum_row<Doubles, 1>, add_row_gradients<Doubles, 1>};

}}  // namespace tandem::v0
