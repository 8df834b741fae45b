// 16-bit floating-point storage types. Arithmetic is done in float; conversion rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of mantissa

  Half() = default;
  /// Rounds to nearest, ties to even; beyond 65504 to infinity.
  TANDEM_HOST_DEVICE explicit Half(float value) : bits(from_float(value)) {}
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
  /// Exact.
  TANDEM_HOST_DEVICE operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  /// Bits of the rounded value.
  TANDEM_HOST_DEVICE static uint16_t from_float(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);  // keep NaN a quiet NaN
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

TANDEM_HOST_DEVICE inline uint16_t Half::from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity from 65520 on
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is subnormal: adding 0.5 aligns the 10 kept bits at the bottom and rounds in hardware.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

TANDEM_HOST_DEVICE inline float Half::to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x0400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

/// Whether T is Half or BFloat16.
template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

}}  // namespace tandem::v0
