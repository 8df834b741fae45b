#include <tandem/tensor/shape.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

int64_t num_elements(const Shape& shape) {
  // Zeros are skipped, so that a zero does not hide the overflow of other sizes.
  int64_t num_bytes = 8;
  bool empty = false;
  for (int64_t size : shape) {
    TANDEM_CHECK(ShapeError, size >= 0, "shape ", shape, " has a negative size");
    empty |= size == 0;
    const bool overflow = __builtin_mul_overflow(num_bytes, std::max<int64_t>(size, 1), &num_bytes);
    TANDEM_CHECK(ShapeError, !overflow, "shape ", shape, " has too many elements: its size in bytes overflows int64");
  }
  return empty ? 0 : num_bytes / 8;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool is_dense(const Shape& shape, const Shape& strides) {
  SmallVector<std::pair<int64_t, int64_t>, 6> dims;  // (stride, size), sorted by stride
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) dims.push_back({strides[d], shape[d]});
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim) {
  const int64_t dims = std::max<int64_t>(ndim, 1);
  TANDEM_CHECK(IndexError, dim >= -dims && dim < dims, op, ": dimension ", dim, " is out of range [", -dims, ", ", dims,
               ") of a tensor with ", ndim, " dimensions");
  return dim < 0 ? dim + dims : dim;
}

}}  // namespace tandem::v0
