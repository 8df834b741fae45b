// Integer arithmetic for sizes and counts.
#pragma once

#include <cstdint>
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

/// a + b, or the nearest int64_t if the sum does not fit. For sizes that are computed from arguments before they are
/// checked: num_elements and ranges reject INT64_MAX.
constexpr int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return !__builtin_add_overflow(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}

/// a * b, or the nearest int64_t if the product does not fit.
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) ? product : (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

}}  // namespace tandem::v0
