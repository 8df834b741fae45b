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
Pair combine_pairs(const Pair& a, const Pair& b) {
  return {combine<op>(a.first, b.first), combine<op>(a.second, b.second)};
}

template <HalfOp op>
__m256 finish(__m256 v, __m256 number) {
  if constexpr (op == HalfOp::kScaledSum) return _mm256_mul_ps(v, number);
  if constexpr (op == HalfOp::kDividedSum) return _mm256_div_ps(v, number);
  return v;
}

/// Calls take(i, elements [i, i + kStep) of N inputs combined) for all steps in [begin, end).
template <HalfOp op, HalfType type, size_t N, class Take>
void combine_inputs(const std::byte* const* inputs, size_t begin, size_t end, const Take& take) {
  // Inputs are often in the cache of the rank that wrote them, and a step has too many instructions for the processor
  // to look that far ahead by itself.
  constexpr size_t kAhead = 512;
  for (size_t i = begin; i < end; i += kStep) {
    for (size_t k = 0; k < N; ++k) __builtin_prefetch(inputs[k] + (i + kAhead) * 2);
    take(i, tree_sum<N>([&](size_t k) { return load<type>(inputs[k], i); }, combine_pairs<op>));
  }
}

constexpr size_t kFused = 8;  // inputs that are combined in registers

template <HalfOp op, HalfType type, class Take>
void combine_few(const std::byte* const* inputs, size_t num_inputs, size_t begin, size_t end, const Take& take) {
  switch (num_inputs) {
    case 1: return combine_inputs<op, type, 1>(inputs, begin, end, take);
    case 2: return combine_inputs<op, type, 2>(inputs, begin, end, take);
    case 3: return combine_inputs<op, type, 3>(inputs, begin, end, take);
    case 4: return combine_inputs<op, type, 4>(inputs, begin, end, take);
    case 5: return combine_inputs<op, type, 5>(inputs, begin, end, take);
    case 6: return combine_inputs<op, type, 6>(inputs, begin, end, take);
    case 7: return combine_inputs<op, type, 7>(inputs, begin, end, take);
    default: return combine_inputs<op, type, kFused>(inputs, begin, end, take);
  }
}

constexpr size_t kTile = 64;  // pairs, which stay in the L1 cache

template <HalfOp op, HalfType type>
void combine_tile(const std::byte* const* inputs, size_t num_inputs, size_t begin, size_t end, Pair* sums) {
  if (num_inputs <= kFused) {
    return combine_few<op, type>(inputs, num_inputs, begin, end,
                                 [&](size_t i, const Pair& sum) { sums[(i - begin) / kStep] = sum; });
  }
  const size_t split = tree_split(num_inputs);
  Pair others[kTile];
  combine_tile<op, type>(inputs, split, begin, end, sums);
  combine_tile<op, type>(inputs + split, num_inputs - split, begin, end, others);
  for (size_t k = 0; k < (end - begin) / kStep; ++k) sums[k] = combine_pairs<op>(sums[k], others[k]);
}

template <HalfOp op, HalfType type>
size_t reduce_all(const std::byte* const* inputs, size_t num_inputs, size_t count, float number, std::byte* out) {
  const __m256 numbers = _mm256_set1_ps(number);
  const auto store_sum = [&](size_t i, const Pair& sum) {
    store<type>(out, i, {finish<op>(sum.first, numbers), finish<op>(sum.second, numbers)});
  };
  const size_t end = count / kStep * kStep;
  if (num_inputs <= kFused) {
    combine_few<op, type>(inputs, num_inputs, 0, end, store_sum);
    return end;
  }
  Pair sums[kTile];
  for (size_t begin = 0; begin < end; begin += kTile * kStep) {
    const size_t tile_end = begin + kTile * kStep < end ? begin + kTile * kStep : end;
    combine_tile<op, type>(inputs, num_inputs, begin, tile_end, sums);
    for (size_t i = begin; i < tile_end; i += kStep) store_sum(i, sums[(i - begin) / kStep]);
  }
  return end;
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
