// 16-bit floating-point storage types. Arithmetic is done in float; conversion rounds to nearest, ties to even. GPUs
// convert by single instructions, whose results differ from those of the CPU only in the bits of NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A number from which a half type is rounded as from `value`: the nearest float, or where that is not exact and even
/// the odd float on the other side of the value. S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded
/// sums: proved algorithms using rounding to odd", 2008.
TANDEM_HOST_DEVICE inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double magnitude = value < 0 ? -value : value, found = nearest < 0 ? -nearest : nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest), is_even = ~bits & 1u;
  return std::bit_cast<float>(bits + (is_even & uint32_t{found < magnitude}) - (is_even & uint32_t{found > magnitude}));
}
/// The same for an integer.
template <class T>
requires(std::is_integral_v<T>) TANDEM_HOST_DEVICE inline float round_to_odd(T value) {
  if constexpr (sizeof(T) <= 2) {
    return static_cast<float>(value);
  } else if constexpr (sizeof(T) == 4) {
    return round_to_odd(static_cast<double>(value));
  } else {
    // From 2^53 on, the lowest 12 bits only matter in whether they are zero; then a double represents the number.
    constexpr T kExact = T{1} << 53;
    constexpr bool kIsUnsigned = T(-1) > T{0};
    const T low = value < kExact && (kIsUnsigned || value > -kExact) ? 0 : value & 0xfff;
    return round_to_odd(static_cast<double>(low == 0 ? value : value - low + 0x800));
  }
}

/// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of mantissa

  Half() = default;
  /// Rounds to nearest, ties to even; the largest finite value is 65504, and magnitudes from 65520 on become infinite.
  TANDEM_HOST_DEVICE explicit Half(float value) : bits(from_float(value)) {}
  /// Rounds the number once, not by way of float.
  TANDEM_HOST_DEVICE explicit Half(double value) : Half(round_to_odd(value)) {}
  /// Rounds the integer once.
  template <class T>
  requires(std::is_integral_v<T>) TANDEM_HOST_DEVICE explicit Half(T value) : Half(round_to_odd(value)) {}
  /// Exact.
  TANDEM_HOST_DEVICE operator float() const { return to_float(bits); }

  /// Bits of the rounded value.
  TANDEM_HOST_DEVICE static uint16_t from_float(float value);
  /// Value of these bits.
  TANDEM_HOST_DEVICE static float to_float(uint16_t bits);
};

/// The upper half of an IEEE 754 binary32.
struct BFloat16 {
  uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of mantissa

  BFloat16() = default;
  /// Rounds to nearest, ties to even.
  TANDEM_HOST_DEVICE explicit BFloat16(float value) : bits(from_float(value)) {}
  /// Rounds the number once, not by way of float.
  TANDEM_HOST_DEVICE explicit BFloat16(double value) : BFloat16(round_to_odd(value)) {}
  /// Rounds the integer once.
  template <class T>
  requires(std::is_integral_v<T>) TANDEM_HOST_DEVICE explicit BFloat16(T value) : BFloat16(round_to_odd(value)) {}
  /// Exact.
  TANDEM_HOST_DEVICE operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  /// Bits of the rounded value.
  TANDEM_HOST_DEVICE static uint16_t from_float(float value) {
#ifdef __CUDA_ARCH__
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);  // keep NaN a quiet NaN
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
  }
};

TANDEM_HOST_DEVICE inline uint16_t Half::from_float(float value) {
#ifdef __CUDA_ARCH__
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu;
  // All cases are computed, so that the compiler vectorizes loops. Below 2^-14 the result is subnormal: adding 0.5
  // aligns the 10 kept bits at the bottom and rounds in hardware.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // rounds to infinity from 65520 on
  result = magnitude > 0x7f800000u ? nan : result;
  return static_cast<uint16_t>(((u >> 16) & 0x8000u) | result);
#endif
}

TANDEM_HOST_DEVICE inline float Half::to_float(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);  // exact
  const uint32_t not_finite = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>((static_cast<uint32_t>(bits & 0x8000u) << 16) | value | not_finite);
#endif
}

/// Whether T is Half or BFloat16.
template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

}}  // namespace tandem::v0
