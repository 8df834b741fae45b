#include <tandem/ops/index/bounds_check_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// The position of element i of a row-major tensor: "3" in one dimension, "[1, 0, 2]" in several.
std::string position_text(const Shape& shape, int64_t i) {
  Shape position = shape;
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = i % shape[d];
    i /= shape[d];
  }
  return shape.size() == 1 ? str(position[0]) : str(position);
}

}  // namespace

void check_indices(const KernelContext&, const char* op, const char* what, const Shape& shape, int64_t size,
                   std::optional<int64_t> ignored, const int64_t* index) {
  const int64_t n = num_elements(shape);
  for (int64_t i = 0; i < n; ++i) {
    TANDEM_CHECK(IndexError, (index[i] >= 0 && index[i] < size) || index[i] == ignored, op, ": ", what, " ", index[i],
                 " at position ", position_text(shape, i), " is outside [0, ", size, ")");
  }
}

}}}  // namespace tandem::v0::cpu
