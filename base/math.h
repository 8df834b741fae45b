// Integer arithmetic for sizes and counts.
#pragma once

#include <type_traits>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// ceil(n / divisor), also for negative n; divisor > 0.
template <class T>
TANDEM_HOST_DEVICE constexpr T ceil_div(T n, std::type_identity_t<T> divisor) {
  return n / divisor + (n % divisor > 0 ? 1 : 0);
}

/// The smallest multiple of `multiple` that is not less than n; multiple > 0.
template <class T>
TANDEM_HOST_DEVICE constexpr T round_up(T n, std::type_identity_t<T> multiple) {
  return ceil_div(n, multiple) * multiple;
}

}}  // namespace tandem::v0
