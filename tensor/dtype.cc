#include <tandem/tensor/dtype.h>

#include <algorithm>
#include <ostream>

namespace tandem { inline namespace v0 {

const char* to_string(DType dtype) {
  constexpr const char* kNames[] = {"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"};
  return kNames[static_cast<int>(dtype)];
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

DType promote(DType a, DType b) {
  // The enum is in promotion order, except for the half types: neither represents all values of the other.
  const bool mixed_halves = (a == kFloat16 && b == kBFloat16) || (a == kBFloat16 && b == kFloat16);
  return mixed_halves ? kFloat32 : std::max(a, b);
}

}}  // namespace tandem::v0
