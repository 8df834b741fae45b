#include <tandem/tensor/reduce_halves_avx2.h>

#include <immintrin.h>

namespace tandem { inline namespace v0 { namespace primitives {

namespace {

constexpr size_t kStep = 16;  // elements in two float vectors

/// kStep elements: for float16 the first and the last eight; for bfloat16 the elements of even and of odd index, which
/// are unpacked and packed within their lanes.
struct Pair {
  __m256 first;
  __m256 second;
};

template <HalfType type>
Pair load(const std::byte* in, size_t i) {
  if constexpr (type == HalfType::kFloat16) {
    const auto* from = reinterpret_cast<const __m128i*>(in + i * 2);
    return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
  }
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i * 2));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
}

/// Rounds each element to the upper half of its lane; the lower half is garbage.
__m256i round_to_bfloat16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

/// `rounded`, with a quiet NaN where `v` is NaN: the rounding may have carried into the exponent.
__m256i keep_nan(__m256 v, __m256i rounded) {
  const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

template <HalfType type>
void store(std::byte* out, size_t i, const Pair& v) {
  if constexpr (type == HalfType::kFloat16) {
    auto* to = reinterpret_cast<__m128i*>(out + i * 2);
    _mm_storeu_si128(to, _mm256_cvtps_ph(v.first, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph(v.second, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  }
  __m256i even = round_to_bfloat16(v.first);
  __m256i odd = round_to_bfloat16(v.second);
  if (_mm256_movemask_ps(_mm256_cmp_ps(v.first, v.second, _CMP_UNORD_Q)) != 0) {  // a NaN somewhere, which is rare
    even = keep_nan(v.first, even);
    odd = keep_nan(v.second, odd);
  }
  const __m256i both = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 2), both);
}

template <HalfOp op>
__m256 combine(__m256 a, __m256 b) {
  if constexpr (op == HalfOp::kProduct) return _mm256_mul_ps(a, b);
  if constexpr (op == HalfOp::kMin || op == HalfOp::kMax) {
    const __m256 before = op == HalfOp::kMin ? _mm256_cmp_ps(a, b, _CMP_LT_OQ) : _mm256_cmp_ps(a, b, _CMP_GT_OQ);
    return _mm256_blendv_ps(b, a, _mm256_or_ps(before, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  }
  return _mm256_add_ps(a, b);
}

template <HalfOp op>
__m256 finish(__m256 v, __m256 number) {
  if constexpr (op == HalfOp::kScaledSum) return _mm256_mul_ps(v, number);
  if constexpr (op == HalfOp::kDividedSum) return _mm256_div_ps(v, number);
  return v;
}

template <HalfOp op, HalfType type>
size_t reduce_all(const std::byte* const* inputs, size_t num_inputs, size_t count, float number, std::byte* out) {
  const __m256 numbers = _mm256_set1_ps(number);
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    Pair sum = load<type>(inputs[0], i);
    for (size_t k = 1; k < num_inputs; ++k) {
      const Pair next = load<type>(inputs[k], i);
      sum = {combine<op>(sum.first, next.first), combine<op>(sum.second, next.second)};
    }
    store<type>(out, i, {finish<op>(sum.first, numbers), finish<op>(sum.second, numbers)});
  }
  return i;
}

template <HalfType type>
size_t reduce_type(HalfOp op, const std::byte* const* inputs, size_t num_inputs, size_t count, float number,
                   std::byte* out) {
  switch (op) {
    case HalfOp::kSum: return reduce_all<HalfOp::kSum, type>(inputs, num_inputs, count, number, out);
    case HalfOp::kScaledSum: return reduce_all<HalfOp::kScaledSum, type>(inputs, num_inputs, count, number, out);
    case HalfOp::kDividedSum: return reduce_all<HalfOp::kDividedSum, type>(inputs, num_inputs, count, number, out);
    case HalfOp::kProduct: return reduce_all<HalfOp::kProduct, type>(inputs, num_inputs, count, number, out);
    case HalfOp::kMin: return reduce_all<HalfOp::kMin, type>(inputs, num_inputs, count, number, out);
    case HalfOp::kMax: break;
  }
  return reduce_all<HalfOp::kMax, type>(inputs, num_inputs, count, number, out);
}

}  // namespace

size_t reduce_halves_avx2(HalfOp op, HalfType type, const std::byte* const* inputs, size_t num_inputs, size_t count,
                          float number, std::byte* out) {
  return type == HalfType::kFloat16 ? reduce_type<HalfType::kFloat16>(op, inputs, num_inputs, count, number, out)
                                    : reduce_type<HalfType::kBFloat16>(op, inputs, num_inputs, count, number, out);
}

}}}  // namespace tandem::v0::primitives
