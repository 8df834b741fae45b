// A shape around one dimension. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 {

/// A shape as [outer, size, inner] around one dimension; a 0-dim tensor has one element.
struct Extents {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

inline Extents extents_around(const Shape& shape, int64_t dim) {
  Extents extents;
  for (int64_t d = 0; d < shape.dim(); ++d) {
    (d < dim ? extents.outer : d == dim ? extents.size : extents.inner) *= shape[static_cast<size_t>(d)];
  }
  return extents;
}

}}  // namespace tandem::v0
