// Element types.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <tandem/base/error.h>
#include <tandem/base/half.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Element type of a tensor. The order is the order of promotion within a kind.
enum class DType : int8_t { kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };
using enum DType;
/// PyTorch's other names of dtypes.
inline constexpr DType kByte = kUInt8;
inline constexpr DType kChar = kInt8;       ///< int8
inline constexpr DType kShort = kInt16;     ///< int16
inline constexpr DType kInt = kInt32;       ///< int32
inline constexpr DType kLong = kInt64;      ///< int64
inline constexpr DType kHalf = kFloat16;    ///< float16
inline constexpr DType kFloat = kFloat32;   ///< float32
inline constexpr DType kDouble = kFloat64;  ///< float64

// clang-format off
/// X(dtype, its C++ type, its name) for each dtype, in the order of the enum. Internal.
#define TANDEM_DTYPES(X)                                                                                           \
  X(kBool, bool, "bool") X(kUInt8, uint8_t, "uint8") X(kInt8, int8_t, "int8") X(kInt16, int16_t, "int16")          \
  X(kInt32, int32_t, "int32") X(kInt64, int64_t, "int64") X(kFloat16, Half, "float16")                             \
  X(kBFloat16, BFloat16, "bfloat16") X(kFloat32, float, "float32") X(kFloat64, double, "float64")
// clang-format on

/// Size of an element in bytes.
constexpr int64_t size_of(DType dtype) {
/// Internal.
#define TANDEM_SIZE(name, type, text) sizeof(type),
  constexpr int64_t kSizes[] = {TANDEM_DTYPES(TANDEM_SIZE)};
#undef TANDEM_SIZE
  return kSizes[static_cast<int>(dtype)];
}
/// Whether `dtype` is one of float16, bfloat16, float32 and float64.
constexpr bool is_floating_point(DType dtype) { return dtype >= kFloat16; }
/// Whether `dtype` is one of uint8, int8, int16, int32 and int64; bool is not.
constexpr bool is_integral(DType dtype) { return dtype <= kInt64 && dtype != kBool; }

/// "float32", "int64", "bool" ...
TANDEM_API const char* to_string(DType dtype);
TANDEM_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// DType of a C++ element type.
template <class T>
constexpr DType dtype_of();
/// Internal.
#define TANDEM_DTYPE_OF(name, type, text) \
  template <>                             \
  constexpr DType dtype_of<type>() {      \
    return name;                          \
  }
TANDEM_DTYPES(TANDEM_DTYPE_OF)
#undef TANDEM_DTYPE_OF

/// Calls f.template operator()<T>() with the C++ type T of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
/// Internal.
#define TANDEM_CASE(name, type, text) \
  case name: return f.template operator()<type>();
  switch (dtype) { TANDEM_DTYPES(TANDEM_CASE) }
#undef TANDEM_CASE
  return f.template operator()<double>();  // not reached
}

/// visit_dtype for integers: T is uint8_t, int8_t, int16_t, int32_t or int64_t.
template <class F>
decltype(auto) visit_integral_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case kUInt8: return f.template operator()<uint8_t>();
    case kInt8: return f.template operator()<int8_t>();
    case kInt16: return f.template operator()<int16_t>();
    case kInt32: return f.template operator()<int32_t>();
    default: return f.template operator()<int64_t>();
  }
}

/// visit_dtype for floating dtypes: T is double, float, Half or BFloat16.
template <class F>
decltype(auto) visit_floating_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case kFloat16: return f.template operator()<Half>();
    case kBFloat16: return f.template operator()<BFloat16>();
    case kFloat64: return f.template operator()<double>();
    default: return f.template operator()<float>();
  }
}

/// The accumulation type of sums of T: float for half types, int64_t for integers, T otherwise.
template <class T>
using Accumulator = std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_integral_v<T>, int64_t, T>>;

/// Result dtype of an operation on tensors of dtypes a and b, as torch.promote_types: bool < integers < floating;
/// float16 with bfloat16 gives float32; uint8 with int8 gives int16.
TANDEM_API DType promote(DType a, DType b);

}}  // namespace tandem::v0
