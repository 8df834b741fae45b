// Indices of GPU kernels of pooling. Private to the *.cu files of ops/.
//
// Kernels of channels-last images process packs of adjacent channels: 16 bytes of elements per thread. Sizes and
// indices then count packs instead of elements. They have type Index: uint32_t if all are below 2^31, else int64_t.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <tandem/base/macros.h>
#include <tandem/base/math.h>
#include <tandem/ops/pool/pool_kernels.h>
#include <tandem/tensor/cuda/packed.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Elements per pixel: the number of channels, or 1 for planes.
template <class Shape>
int64_t pixel_of(const Shape& shape) {
  return shape.channels_last ? shape.channels : 1;
}
template <class Shape>
int64_t image_elements(const Shape& shape) {
  return shape.batch * shape.channels * shape.height.image * shape.width.image;
}
template <class Shape>
int64_t window_elements(const Shape& shape) {
  return shape.batch * shape.channels * shape.height.windows * shape.width.windows;
}

/// An upper bound of the numbers that the functions of an axis compute.
inline int64_t bound_of(const MaxPoolAxis& axis) { return axis.image + 2 * axis.padding + axis.stride + axis.dilation; }
inline int64_t bound_of(const AvgPoolAxis& axis) {
  if (axis.kernel == 0) return (axis.image + 1) * (axis.windows + 1);
  return axis.image + 2 * axis.padding + axis.stride + axis.kernel;
}

/// Whether uint32_t can index packs of `pack` elements.
template <class Shape>
bool has_small_indices(const Shape& shape, int pack) {
  const int64_t elements = std::max(image_elements(shape), window_elements(shape));
  return std::max({elements / pack, bound_of(shape.height), bound_of(shape.width)}) <= INT32_MAX;
}

/// Calls run.operator()<Index>() with the type of indices of elements.
template <class Shape, class Run>
void visit_index(const Shape& shape, const Run& run) {
  has_small_indices(shape, 1) ? run.template operator()<uint32_t>() : run.template operator()<int64_t>();
}

/// Calls run.operator()<Index, kPack>() for elements of type T; `data` are the pointers that are accessed by packs.
template <class T, class Shape, class Run>
void visit_packs(const Shape& shape, std::initializer_list<const void*> data, const Run& run) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  if (pixel_of(shape) % kPack == 0 && has_small_indices(shape, kPack) &&
      std::ranges::all_of(data, is_aligned_for_packs)) {
    return run.template operator()<uint32_t, kPack>();
  }
  visit_index(shape, [&]<class Index>() { run.template operator()<Index, 1>(); });
}

/// A number below 2^31 by which numbers below 2^31 are divided, by a multiplication (Granlund and Montgomery, Division
/// by Invariant Integers using Multiplication, 1994). Dividing by 0 gives any number.
class FastDivisor {
 public:
  explicit FastDivisor(int64_t value)
      : value_(static_cast<uint32_t>(value)), shift_(value > 1 ? std::bit_width(value_ - 1) : 0) {
    factor_ = static_cast<uint32_t>(ceil_div(int64_t{1} << (31 + shift_), std::max<int64_t>(value, 1)));
  }

  TANDEM_HOST_DEVICE operator uint32_t() const { return value_; }
  friend TANDEM_HOST_DEVICE uint32_t operator/(uint32_t n, const FastDivisor& d) {
    return static_cast<uint32_t>((uint64_t{2 * n} * d.factor_) >> 32) >> d.shift_;
  }
  friend TANDEM_HOST_DEVICE uint32_t operator%(uint32_t n, const FastDivisor& d) { return n - n / d * d.value_; }

 private:
  uint32_t value_;
  int shift_;        ///< ceil(log2(value))
  uint32_t factor_;  ///< ceil(2^(31 + shift) / value)
};
template <class Index>
using Divisor = std::conditional_t<std::is_same_v<Index, uint32_t>, FastDivisor, int64_t>;

/// A pack of images [batch, channels, rows, columns]; `image` is the index of a channels-last image or of a plane.
template <class Index>
struct PoolPosition {
  Index image;
  Index row;
  Index column;
  Index channel;  ///< pack in its pixel
};

/// The number of packs of images or windows in each dimension, for one thread per pack.
template <class Index>
struct PoolGrid {
  Divisor<Index> rows;
  Divisor<Index> columns;
  Divisor<Index> pixel;

  /// The position of pack i in memory order.
  __device__ PoolPosition<Index> position(int64_t i) const {
    const Index own = static_cast<Index>(i), at = own / pixel, line = at / columns, image = line / rows;
    return {image, line - image * rows, at - line * columns, own - at * pixel};
  }
};

/// pack: elements per pack.
template <class Index, class Shape>
PoolGrid<Index> grid_of_images(const Shape& shape, int pack = 1) {
  using D = Divisor<Index>;
  return {D(shape.height.image), D(shape.width.image), D(pixel_of(shape) / pack)};
}
template <class Index, class Shape>
PoolGrid<Index> grid_of_windows(const Shape& shape, int pack = 1) {
  using D = Divisor<Index>;
  return {D(shape.height.windows), D(shape.width.windows), D(pixel_of(shape) / pack)};
}

}}}  // namespace tandem::v0::cuda
