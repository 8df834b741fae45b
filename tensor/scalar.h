// A C++ number as an operand. It never changes the dtype of a floating tensor operand.
#pragma once

#include <concepts>
#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 {

/// A double, int64_t or bool.
class Scalar {
 public:
  /// Any floating-point or integer number, or a bool. Implicit, so that `x + 1` and `x * 0.5` work.
  Scalar(std::floating_point auto value) : dtype_(kFloat64), real_(static_cast<double>(value)) {}
  Scalar(std::integral auto value) : dtype_(kInt64), integer_(static_cast<int64_t>(value)) {}
  Scalar(bool value) : dtype_(kBool), integer_(value) {}

  /// kFloat64, kInt64 or kBool: the kind of number.
  DType dtype() const { return dtype_; }
  /// The number as a double.
  double to_double() const { return dtype_ == kFloat64 ? real_ : static_cast<double>(integer_); }
  /// The number as an int64_t; a fraction is truncated.
  int64_t to_int() const { return dtype_ == kFloat64 ? static_cast<int64_t>(real_) : integer_; }
  /// The number as T: bool, an integer or a floating type of any width, to which it is rounded once.
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) {
      return dtype_ == kFloat64 ? real_ != 0 : integer_ != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(to_int());
    } else {
      return dtype_ == kFloat64 ? static_cast<T>(real_) : static_cast<T>(integer_);
    }
  }

 private:
  DType dtype_;
  union {
    double real_;
    int64_t integer_;
  };
};

/// Whether `dtype` can represent the number. An integer dtype can if the number, truncated, is in its range; it cannot
/// represent NaN. bool and floating dtypes always can: the number is converted or rounded.
TANDEM_API bool can_hold(DType dtype, Scalar value);
/// Throws ValueError "OP: NAME 300 does not fit in uint8 (0 to 255); choose another dtype" unless can_hold.
TANDEM_API void check_fits(const char* op, const char* name, Scalar value, DType dtype);

}}  // namespace tandem::v0
