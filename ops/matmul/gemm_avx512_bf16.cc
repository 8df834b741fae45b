// GEMM micro-kernels for the dot products of AVX512_BF16. Subnormal numbers are zeros for them.
#include <immintrin.h>

#include <tandem/ops/matmul/gemm_avx512_inl.h>

namespace tandem { inline namespace v0 { namespace {

struct V : Avx512 {
  using Element = unsigned short;
  static Vector dot(Vector a, Vector b, Vector sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}}}  // namespace tandem::v0

#include <tandem/ops/matmul/gemm_tile_inl.h>

namespace tandem { inline namespace v0 {
namespace {

using Element = V::Element;
constexpr long kMaxRows = 48;

/// The first n of 16 elements, n >= 0; the others are 0. Masked forms here, because GCC 12 warns about the other ones.
__m512i load16(const Element* from, long n) {
  return _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(n >= 16 ? 0xffff : V::first(n), from));
}
__m512i shifted(__m512i elements) { return _mm512_maskz_slli_epi32(0xffff, elements, 16); }

float word(Element low, Element high) {
  const unsigned bits = low | static_cast<unsigned>(high) << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

void pack_right(const BFloat16* elements, long k, long columns, long k_stride, long column_stride, float* panel) {
  const Element* source = reinterpret_cast<const Element*>(elements);
  const long padded = padded_columns(columns);
  if (column_stride != 1) {
    pack_columns(source, k / 2, columns, column_stride * static_cast<long>(sizeof(Element)), panel);
    if (k % 2 == 0) return;
    for (long j = 0; j < padded; ++j) {
      panel[k / 2 * kColumns + j] = j < columns ? word(source[j * column_stride + k - 1], 0) : 0;
    }
    return;
  }
  for (long l = 0; l < k; l += 2, source += 2 * k_stride, panel += kColumns) {
    for (long j = 0; j < padded; j += 16) {
      const long n = columns > j ? columns - j : 0;
      const __m512i high = shifted(load16(source + k_stride + j, l + 1 < k ? n : 0));
      _mm512_storeu_si512(panel + j, _mm512_or_si512(load16(source + j, n), high));
    }
  }
}

void pack_left(const BFloat16* elements, long k, long rows, long k_stride, float* panel) {
  const Element* source = reinterpret_cast<const Element*>(elements);
  long l = 0;
  // Copies eight words at a time; the next copy overwrites the excess. The last row is copied exactly.
  for (; rows == V::kRows && l + 2 < k; l += 2, source += 2 * k_stride, panel += V::kRows) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + k_stride));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel),
                        _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high)));
  }
  for (; l < k; l += 2, source += 2 * k_stride, panel += V::kRows) {
    for (long i = 0; i < V::kRows; ++i) {
      panel[i] = i < rows ? word(source[i], l + 1 < k ? source[k_stride + i] : Element(0)) : 0;
    }
  }
}

void store_rounded(const GemmTile<float>& block, const float* values, long stride, BFloat16* out) {
  alignas(64) float turned[kColumns * kMaxRows];
  long rows = block.rows, columns = block.columns;
  if (block.transposed) {
    GemmTile<float> turn{};
    turn.rows = rows;
    turn.columns = columns;
    turn.out = turned;
    turn.out_leading = kMaxRows;
    store_transposed(turn, values, stride);
    values = turned;
    stride = kMaxRows;
    rows = block.columns;
    columns = block.rows;
  }
  for (long i = 0; i < rows; ++i) {
    Element* const row = reinterpret_cast<Element*>(out) + i * block.out_leading;
    for (long j = 0; j < columns; j += 16) {
      const long n = columns - j < 16 ? columns - j : 16;
      V::Vector value = V::load_some(values + i * stride + j, n);  // the others may be signaling NaNs
      if (block.beta != 0) {
        value = V::fma(V::broadcast(block.beta), _mm512_castsi512_ps(shifted(load16(row + j, n))), value);
      }
      if (block.bias != nullptr) value = V::add(value, V::load_some(block.bias + j, n));
      if (block.relu) value = V::positive(value);
      _mm256_mask_storeu_epi16(row + j, V::first(n), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    }
  }
}

}  // namespace

const Bf16GemmKernels kGemmAvx512Bf16 = {
    {{"avx512_bf16", V::kRows, kColumns, solve, pack_right, pack_left}, store_transposed}, store_rounded};

}}  // namespace tandem::v0
