// Kernels of random tensors. Private to ops/.
#pragma once

#include <algorithm>
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

/// Two normal values of type T from the words of two uniform values.
template <class T>
struct NormalPair {
  T first, second;
};
template <class T>
TANDEM_HOST_DEVICE NormalPair<T> normal_pair(const uint32_t* words) {
  using U = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const double u = uniform_value<U>(words), v = uniform_value<U>(words + words_per_uniform(dtype_of<T>()));
  const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::numbers::pi * v;
  return {T(static_cast<U>(radius * std::cos(angle))), T(static_cast<U>(radius * std::sin(angle)))};
}

/// The sort key of multinomial without replacement: an exponential random value of rate `weight`, infinite for weight
/// 0.
TANDEM_HOST_DEVICE inline double exponential_value(double u, double weight) {
  return weight > 0 ? -std::log1p(-u) / weight : std::numeric_limits<double>::infinity();
}

/// The index of the first of `classes` partial sums that exceeds u times the last one; the last one is positive, 0 <= u
/// < 1.
TANDEM_HOST_DEVICE inline int64_t sampled_index(const double* sums, int64_t classes, double u) {
  const double* found = std::upper_bound(sums, sums + classes, u * sums[classes - 1]);
  // The product may round up to the last sum; then the first index that reaches it.
  if (found == sums + classes) found = std::lower_bound(sums, sums + classes, sums[classes - 1]);
  return found - sums;
}

// clang-format off
TANDEM_KERNELS(
/// n values as documented in ops/random.h. Here and below, out is row-major and begins its storage.
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
