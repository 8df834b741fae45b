// Kernels of random tensors. Private to ops/.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <type_traits>

#include <tandem/base/error.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// floor(word * range / 2^64): an integer in [0, range).
TANDEM_HOST_DEVICE inline uint64_t scale_to_range(uint64_t word, uint64_t range) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * range) >> 64);
}
TANDEM_HOST_DEVICE inline uint64_t join(const uint32_t* words) {
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

/// Uniform values as documented in ops/random.h.
TANDEM_HOST_DEVICE inline float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
TANDEM_HOST_DEVICE inline double uniform_double(uint32_t first, uint32_t second) {
  return (static_cast<double>(first >> 5) * 0x1p26 + static_cast<double>(second >> 6)) * 0x1p-53;
}

/// Words of the stream per value.
constexpr int64_t words_per_uniform(DType dtype) { return dtype == kFloat64 ? 2 : 1; }

/// A uniform value of type T from its words. Half types use only as many bits as keep the value below 1.
template <class T>
TANDEM_HOST_DEVICE T uniform_value(const uint32_t* words) {
  if constexpr (std::is_same_v<T, double>) {
    return uniform_double(words[0], words[1]);
  } else if constexpr (std::is_same_v<T, float>) {
    return uniform_float(words[0]);
  } else {
    constexpr int kBits = std::is_same_v<T, Half> ? 11 : 8;
    return T(static_cast<float>(words[0] >> (32 - kBits)) * (1.0f / (1 << kBits)));
  }
}

template <class T>
struct NormalPair {
  T first, second;
};

/// sqrt(-2 log(1 - u)) (cos(2 pi v), sin(2 pi v)) for the uniform values u and v of two words, computed in float64 and
/// rounded once, without branches, so that the compiler vectorizes loops.
TANDEM_HOST_DEVICE inline NormalPair<float> box_muller(uint32_t u_word, uint32_t v_word) {
  // 1 - u, an exact float in (0, 1], is 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) = 2 atanh(s).
  const uint32_t bits = std::bit_cast<uint32_t>(1.0f - uniform_float(u_word));
  const int32_t n = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const double f = static_cast<double>(std::bit_cast<float>(bits - (static_cast<uint32_t>(n) << 23)) - 1.0f);
  const double s = f / (2 + f), z = s * s;
  double log = 1.0 / 19;
  for (int k = 17; k >= 1; k -= 2) log = __builtin_fma(log, z, 1.0 / k);
  const double radius = std::sqrt(-2 * __builtin_fma(2 * s, log, n * std::numbers::ln2));
  // 4 v = q + r with abs(r) <= 1/2, exactly; Taylor series of sine and cosine of the angle r pi / 2.
  const float turns = 4.0f * uniform_float(v_word), shifted = turns + 12582912.0f;
  const double angle = static_cast<double>(turns - (shifted - 12582912.0f)) * (std::numbers::pi / 2);
  const double square = -angle * angle;
  double sine = 1, cosine = 1;
  for (int k = 16; k >= 2; k -= 2) {
    sine = __builtin_fma(sine, square * (1.0 / (k * (k + 1))), 1.0);
    cosine = __builtin_fma(cosine, square * (1.0 / (k * (k - 1))), 1.0);
  }
  const uint32_t quadrant = std::bit_cast<uint32_t>(shifted);
  const uint32_t x = std::bit_cast<uint32_t>(static_cast<float>(radius * cosine));
  const uint32_t y = std::bit_cast<uint32_t>(static_cast<float>(radius * (sine * angle)));
  const uint32_t is_odd = 0u - (quadrant & 1u);
  return {std::bit_cast<float>(((y & is_odd) | (x & ~is_odd)) ^ (((quadrant + 1) & 2u) << 30)),
          std::bit_cast<float>(((x & is_odd) | (y & ~is_odd)) ^ ((quadrant & 2u) << 30))};
}

/// Two normal values of type T from the words of two uniform values.
template <class T>
TANDEM_HOST_DEVICE NormalPair<T> normal_pair(const uint32_t* words) {
  const auto pair = box_muller(words[0], words[1]);
  return {T(pair.first), T(pair.second)};
}
template <>
TANDEM_HOST_DEVICE inline NormalPair<double> normal_pair(const uint32_t* words) {
  const double u = uniform_value<double>(words), v = uniform_value<double>(words + 2);
  const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// The sort key of multinomial without replacement: an exponential random value of rate `weight`, infinite for weight
/// 0.
TANDEM_HOST_DEVICE inline double exponential_value(double u, double weight) {
  return weight > 0 ? -std::log1p(-u) / weight : std::numeric_limits<double>::infinity();
}

/// The index of the first of `classes` partial sums that exceeds u times the last one; the last one is positive, 0 <= u
/// < 1.
TANDEM_HOST_DEVICE inline int64_t sampled_index(const double* sums, int64_t classes, double u) {
  const double last = sums[classes - 1], limit = u * last;
  const bool rounds_up = limit == last;  // then the first index that reaches the last sum
  // No std::upper_bound: in GPU code nvcc 13.0 compiles the std::advance of libstdc++ 12 to nothing.
  int64_t begin = 0, end = classes;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (rounds_up ? sums[middle] < limit : sums[middle] <= limit) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// clang-format off
TANDEM_KERNELS(
/// n values as documented in ops/random.h. Here and below, out is row-major and starts at the beginning of its storage.
void uniform(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out);
void normal(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out);
/// low + an integer in [0, range); range 0 means 2^64. Integer dtypes.
void integers(const KernelContext& context, DType dtype, PhiloxState state, int64_t low, uint64_t range, int64_t n,
              void* out);
void bernoulli(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, const void* p, void* out);
/// Samples as documented in ops/random.h; out [rows, samples]. workspace: rows x classes float64.
void multinomial(const KernelContext& context, DType dtype, PhiloxState state, int64_t rows, int64_t classes,
                 int64_t samples, bool replacement, const void* weights, double* workspace, int64_t* out);
/// out[i] = word i >= threshold ? x[i] * scale : 0.
void dropout(const KernelContext& context, DType dtype, PhiloxState state, uint64_t threshold, double scale, int64_t n,
             const void* x, void* out);
/// ValueError if one of n probabilities is outside [0, 1]: thrown at once on CPUs, reported as a device error on GPUs.
void check_probabilities(const KernelContext& context, DType dtype, int64_t n, const void* p);
/// ValueError, raised in the same way, if a row of weights [rows, classes] has a negative or non-finite number, or
/// fewer than `needed` positive numbers.
void check_weights(const KernelContext& context, DType dtype, int64_t rows, int64_t classes, int64_t needed,
                   const void* weights);
)
// clang-format on

namespace cpu {

/// A random permutation of 0 .. n - 1. Swaps depend on each other, so there is no GPU kernel.
void permutation(const CpuContext& context, PhiloxState state, int64_t n, int64_t* out);

}  // namespace cpu

/// Error texts of check_probabilities and check_weights.
inline std::string bad_probability_text(double p, int64_t position) {
  return str("bernoulli: probability ", p, " at position ", position, " is outside [0, 1]");
}
inline std::string bad_weight_text(double weight, int64_t row, int64_t position) {
  return str("multinomial: row ", row, " holds ", weight, " at position ", position,
             ", must be finite and not negative");
}
inline std::string too_few_weights_text(int64_t row, int64_t positive, int64_t needed) {
  if (positive == 0) return str("multinomial: row ", row, " holds no positive number");
  return str("multinomial: row ", row, " holds ", positive, " positive numbers, which are not enough to draw ", needed,
             " without replacement");
}

}}  // namespace tandem::v0
