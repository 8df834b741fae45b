// Shapes and strides.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/small_vector.h>

namespace tandem { inline namespace v0 {

/// An integer type other than bool.
template <class T>
concept IntegerType = std::integral<T> && !std::same_as<T, bool>;

/// Sizes or strides, one int64_t per dimension; up to six dimensions are stored inside the object.
class TANDEM_API Shape : public SmallVector<int64_t, 6> {
 public:
  Shape() = default;
  /// One size: 5 is {5}. Implicit, so that `zeros(5)` and `x.sum(1)` work.
  Shape(IntegerType auto size) : SmallVector({static_cast<int64_t>(size)}) {}
  /// `n` sizes, all equal to `size`.
  explicit Shape(size_t n, int64_t size) : SmallVector(n, size) {}
  /// Sizes from a range.
  template <class It>
  requires(!std::is_integral_v<It>) Shape(It first, It last) : SmallVector(first, last) {}
  /// Sizes from a list: {64, 256}.
  Shape(std::initializer_list<int64_t> sizes) : SmallVector(sizes) {}
  Shape(const std::vector<int64_t>& sizes) : SmallVector(sizes.begin(), sizes.end()) {}
  Shape(std::span<const int64_t> sizes) : SmallVector(sizes.begin(), sizes.end()) {}

  /// Sizes from numbers: list(2, -1).
  static Shape list(IntegerType auto... sizes) { return {static_cast<int64_t>(sizes)...}; }

  int64_t dim() const { return static_cast<int64_t>(size()); }  ///< number of dimensions
};

/// "[64, 256]"; "[]" for a 0-dim tensor.
TANDEM_API std::string to_string(const Shape& shape);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Product of the sizes; 1 for no dimensions. Throws ShapeError for a negative size, or if the size in bytes, at 8
/// bytes per element, overflows int64_t.
TANDEM_API int64_t num_elements(const Shape& shape);

/// Strides, in elements, of a row-major tensor of that shape.
TANDEM_API Shape row_major_strides(const Shape& shape);

/// Whether the elements fill one contiguous range of memory without overlap: a row-major tensor or a permutation of
/// one.
TANDEM_API bool is_dense(const Shape& shape, const Shape& strides);

/// `dim`, or dim + ndim if negative. Throws IndexError outside [-ndim, ndim); a 0-dim tensor counts as one dimension.
TANDEM_API int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim);

}}  // namespace tandem::v0
