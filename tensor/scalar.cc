#include <tandem/tensor/scalar.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

namespace {

/// f(std::numeric_limits<T>()) for an integer dtype; `other` for all other dtypes.
template <class Result, class F>
Result with_limits(DType dtype, Result other, F&& f) {
  return visit_dtype(dtype, [&]<class T>() -> Result {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return f(std::numeric_limits<T>());
    } else {
      return other;
    }
  });
}

}  // namespace

bool can_hold(DType dtype, Scalar value) {
  return with_limits(dtype, true, [&]<class T>(std::numeric_limits<T> limits) {
    if (value.dtype() != kFloat64) return value.to_int() >= limits.lowest() && value.to_int() <= limits.max();
    const double whole =
        std::trunc(value.to_double());  // max() + 1 is a power of two, thus exact as a double; max() may not be
    return whole >= static_cast<double>(limits.lowest()) && whole < std::ldexp(1.0, limits.digits);
  });
}

void check_fits(const char* op, const char* name, Scalar value, DType dtype) {
  if (can_hold(dtype, value)) return;
  const std::string number = value.dtype() == kFloat64 ? str(value.to_double()) : str(value.to_int());
  const std::string range = with_limits(
      dtype, std::string(), [](auto limits) { return str(int64_t{limits.lowest()}, " to ", int64_t{limits.max()}); });
  throw ValueError(with_module_scope(
      str(op, ": ", name, " ", number, " does not fit in ", dtype, " (", range, "); choose another dtype")));
}

}}  // namespace tandem::v0
