#include <tandem/distributed/reduce_kernels_avx2.h>

#include <immintrin.h>

namespace tandem::inline v0::distributed {

namespace {

constexpr size_t kStep = 16;  // elements of two vectors of float

struct Pair {
  __m256 low;
  __m256 high;
};

template <HalfType type>
__m256 widen(__m128i halves) {
  if constexpr (type == HalfType::kFloat16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

template <HalfType type>
Pair load(const std::byte* in, size_t i) {
  const auto* from = reinterpret_cast<const __m128i*>(in + i * 2);
  return {widen<type>(_mm_loadu_si128(from)), widen<type>(_mm_loadu_si128(from + 1))};
}

/// The upper halves of rounded elements, in the lower halves.
__m256i round_to_bfloat16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i kept = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(kept, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(kept, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

template <HalfType type>
void store(std::byte* out, size_t i, const Pair& v) {
  auto* to = reinterpret_cast<__m128i*>(out + i * 2);
  if constexpr (type == HalfType::kFloat16) {
    _mm_storeu_si128(to, _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else {
    // Packing works within the two 128-bit lanes: the middle quarters change places.
    const __m256i packed = _mm256_packus_epi32(round_to_bfloat16(v.low), round_to_bfloat16(v.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
  }
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
      sum = {combine<op>(sum.low, next.low), combine<op>(sum.high, next.high)};
    }
    store<type>(out, i, {finish<op>(sum.low, numbers), finish<op>(sum.high, numbers)});
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

}  // namespace tandem::inline v0::distributed
