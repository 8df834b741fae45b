// Conversion and addition of elements of all dtypes.
#pragma once

#include <limits>
#include <type_traits>

#include <tandem/base/half.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace primitives {

/// Converts a value. Floating to integer truncates toward zero and saturates; NaN becomes 0. Integer to integer wraps
/// around. To a floating type rounds once, to nearest, ties to even.
template <class To, class From>
TANDEM_HOST_DEVICE inline To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsHalf<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;  // smallest value out of range
    constexpr From kMin = static_cast<From>(std::numeric_limits<To>::min());
    if (value >= kEnd) return std::numeric_limits<To>::max();
    if (value > kMin) return static_cast<To>(value);
    return value <= kMin ? std::numeric_limits<To>::min() : To{0};
  } else {
    return static_cast<To>(value);
  }
}

/// a + b in T; integers wrap around, bool is "or".
template <class T>
TANDEM_HOST_DEVICE inline T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

}}}  // namespace tandem::v0::primitives
