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

/// IndexError if element i of `index` is not in [low, size).
void check_index(const char* op, const char* what, const Shape& shape, int64_t low, int64_t size, int64_t i,
                 int64_t index) {
  TANDEM_CHECK(IndexError, index >= low && index < size, op, ": ", what, " ", index, " at position ",
               position_text(shape, i), " is outside [", low, ", ", size, ")");
}

}  // namespace

void check_indices(const KernelContext&, const char* op, const char* what, const Shape& shape, int64_t size,
                   std::optional<int64_t> ignored, const int64_t* index) {
  const int64_t n = num_elements(shape);
  // The sign bit of `outside` is set if an index is below 0 or above size - 1.
  uint64_t outside = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t value = static_cast<uint64_t>(index[i]);
    outside |= value | (static_cast<uint64_t>(size) - 1 - value);
  }
  if (static_cast<int64_t>(outside) >= 0) return;
  for (int64_t i = 0; i < n; ++i) {
    if (index[i] != ignored) check_index(op, what, shape, 0, size, i, index[i]);
  }
}

void wrap_indices(const KernelContext&, const char* op, const char* what, const Shape& shape, int64_t size,
                  const int64_t* index, int64_t* out) {
  const int64_t n = num_elements(shape);
  for (int64_t i = 0; i < n; ++i) {
    check_index(op, what, shape, -size, size, i, index[i]);
    out[i] = index[i] + (index[i] < 0 ? size : 0);
  }
}

}}}  // namespace tandem::v0::cpu
