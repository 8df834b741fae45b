#include <tandem/tensor/dtype.h>

#include <algorithm>
#include <ostream>

namespace tandem { inline namespace v0 {

const char* to_string(DType dtype) {
#define TANDEM_NAME(name, type, text) text,
  constexpr const char* kNames[] = {TANDEM_DTYPES(TANDEM_NAME)};
#undef TANDEM_NAME
  return kNames[static_cast<int>(dtype)];
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

DType promote(DType a, DType b) {
  // The enum is in promotion order, except for two pairs of which neither represents all values of the other.
  const auto [low, high] = std::minmax(a, b);
  if (low == kUInt8 && high == kInt8) return kInt16;
  return low == kFloat16 && high == kBFloat16 ? kFloat32 : high;
}

}}  // namespace tandem::v0
