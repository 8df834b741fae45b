// Vectors of AVX-512 for gemm_tile_inl.h. The including file defines dot.
#pragma once

namespace tandem { inline namespace v0 { namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 4;

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector value) { _mm512_storeu_ps(p, value); }
  static __mmask16 first(long n) { return static_cast<__mmask16>((1u << n) - 1); }
  static Vector load_some(const float* p, long n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_some(float* p, Vector value, long n) { _mm512_mask_storeu_ps(p, first(n), value); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  /// Keeps NaN: the instruction returns its second operand if one is NaN. The masked form, because GCC 12 warns about
  /// the undefined operand of the other one.
  static Vector positive(Vector a) { return _mm512_maskz_max_ps(0xffff, zero(), a); }
};

}}}  // namespace tandem::v0
