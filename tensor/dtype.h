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

/// Size of an element in bytes.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
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
// clang-format off
template <> constexpr DType dtype_of<bool>() { return kBool; }
template <> constexpr DType dtype_of<uint8_t>() { return kUInt8; }
template <> constexpr DType dtype_of<int8_t>() { return kInt8; }
template <> constexpr DType dtype_of<int16_t>() { return kInt16; }
template <> constexpr DType dtype_of<int32_t>() { return kInt32; }
template <> constexpr DType dtype_of<int64_t>() { return kInt64; }
template <> constexpr DType dtype_of<Half>() { return kFloat16; }
template <> constexpr DType dtype_of<BFloat16>() { return kBFloat16; }
template <> constexpr DType dtype_of<float>() { return kFloat32; }
template <> constexpr DType dtype_of<double>() { return kFloat64; }
// clang-format on

/// Calls f.template operator()<T>() with the C++ type T of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case kBool: return f.template operator()<bool>();
    case kUInt8: return f.template operator()<uint8_t>();
    case kInt8: return f.template operator()<int8_t>();
    case kInt16: return f.template operator()<int16_t>();
    case kInt32: return f.template operator()<int32_t>();
    case kInt64: return f.template operator()<int64_t>();
    case kFloat16: return f.template operator()<Half>();
    case kBFloat16: return f.template operator()<BFloat16>();
    case kFloat32: return f.template operator()<float>();
    case kFloat64: break;
  }
  return f.template operator()<double>();
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
