// Kernels of depthwise convolutions for AVX-512.
#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace {

struct Floats {
  using Number = float;
  using Vector = __m512;
  static constexpr int kLanes = 16;

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector value) { _mm512_storeu_ps(p, value); }
  static __mmask16 first(long n) { return static_cast<__mmask16>((1u << n) - 1); }
  static Vector load_some(const float* p, long n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_some(float* p, Vector value, long n) { _mm512_mask_storeu_ps(p, first(n), value); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  /// Keeps NaN: the instruction returns its second operand if one is NaN. The masked form, because GCC 12 warns about
  /// the undefined operand of the other one.
  static Vector positive(Vector a) { return _mm512_maskz_max_ps(0xffff, zero(), a); }
  template <int D>
  static Vector load_members(const float* p, int i) {
    const __m512i lanes = _mm512_and_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(-D));
    return _mm512_maskz_permutexvar_ps(0xffff, _mm512_add_epi32(lanes, _mm512_set1_epi32(i)), load(p));
  }
};

}}}  // namespace tandem::v0

#include <tandem/ops/conv/depthwise_row_inl.h>

namespace tandem { inline namespace v0 {

const DepthwiseKernels<float> kDepthwiseAvx512 = {sum_any_width<Floats>, add_gradients_of_any_width<Floats>};

}}  // namespace tandem::v0
