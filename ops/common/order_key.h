// Integer keys with the order of the values of any dtype. Private to ops/.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

/// The signed integer type of T's size.
template <class T>
using OrderKey = std::conditional_t<
    sizeof(T) == 1, int8_t,
    std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>>;

namespace keys {

/// XOR of an integer's bits with this gives its key.
template <class T>
inline constexpr OrderKey<T> kFlip = std::is_signed_v<T> ? 0 : std::numeric_limits<OrderKey<T>>::min();

/// The bits of infinity. The bits of the magnitude of a NaN are a larger integer.
template <class T>
inline constexpr OrderKey<T> kInfinity = [] {
  if constexpr (std::is_same_v<T, Half>) return int16_t{0x7c00};
  if constexpr (std::is_same_v<T, BFloat16>) return int16_t{0x7f80};
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<OrderKey<T>>(std::numeric_limits<T>::infinity());
}();

}  // namespace keys

/// A key with the order of the values, without branches. NaN is the largest value. Zeros of both signs have one key, or
/// if not equal_zeros, -0 is less than +0.
template <class T>
TANDEM_HOST_DEVICE inline OrderKey<T> order_key(T value, bool equal_zeros = true) {
  using Key = OrderKey<T>;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(std::bit_cast<Key>(value) ^ keys::kFlip<T>);
  } else {
    constexpr Key kLargest = std::numeric_limits<Key>::max();
    const Key bits = std::bit_cast<Key>(value);
    const Key magnitude = static_cast<Key>(bits & kLargest);
    const Key sign = static_cast<Key>(bits >> (8 * sizeof(Key) - 1));  // 0 or -1
    const Key key = static_cast<Key>((magnitude ^ sign) - (equal_zeros ? sign : 0));
    return magnitude > keys::kInfinity<T> ? kLargest : key;
  }
}

/// An unsigned key with the order of the values, or the reverse order if `descending`.
template <class T>
TANDEM_HOST_DEVICE inline auto sort_key(T value, bool descending) {
  using Key = std::make_unsigned_t<OrderKey<T>>;
  const auto key = static_cast<Key>(static_cast<Key>(order_key(value)) ^ (Key{1} << (8 * sizeof(Key) - 1)));
  return static_cast<Key>(descending ? ~key : key);
}

/// A key with the order of the values if `largest`, else with the reverse order; NaN has the largest key in both.
template <class T>
TANDEM_HOST_DEVICE inline OrderKey<T> extremum_key(T value, bool largest, bool equal_zeros) {
  using Key = OrderKey<T>;
  const Key key = order_key(value, equal_zeros);
  if (largest || (!std::is_integral_v<T> && key == std::numeric_limits<Key>::max())) return key;
  return static_cast<Key>(~key);
}

/// The value whose extremum_key, without equal_zeros, is `key`.
template <class T>
TANDEM_HOST_DEVICE inline T value_of_key(OrderKey<T> key, bool largest) {
  using Key = OrderKey<T>;
  constexpr Key kLargest = std::numeric_limits<Key>::max();
  const bool is_nan = !std::is_integral_v<T> && key == kLargest;
  const Key ordered = static_cast<Key>(largest || is_nan ? key : ~key);
  if constexpr (std::is_integral_v<T>) {
    return std::bit_cast<T>(static_cast<Key>(ordered ^ keys::kFlip<T>));
  } else {
    return std::bit_cast<T>(static_cast<Key>(ordered < 0 ? ordered ^ kLargest : ordered));
  }
}

}}  // namespace tandem::v0
