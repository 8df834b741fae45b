// Mapping from element numbers to positions in images. Private to the *.cu files of ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// An element of images [batch, channels, rows, columns]; `image` is the index of a channels-last image or of a plane.
struct PoolPosition {
  int64_t image;
  int64_t row;
  int64_t column;
  int64_t channel;  ///< channel of a channels-last image, else 0
};

template <class Index>
__device__ PoolPosition split_position(Index i, Index rows, Index columns, Index pixel) {
  const Index at = i / pixel, line = at / columns, image = line / rows;
  return {static_cast<int64_t>(image), static_cast<int64_t>(line - image * rows),
          static_cast<int64_t>(at - line * columns), static_cast<int64_t>(i - at * pixel)};
}

/// The position of element i of n in memory order. pixel: elements per pixel, which is the number of channels, or 1 for
/// planes.
__device__ inline PoolPosition position_of(int64_t i, int64_t n, int64_t rows, int64_t columns, int64_t pixel) {
  if (n > INT32_MAX) return split_position<int64_t>(i, rows, columns, pixel);
  // 64-bit divisions are several times as slow.
  return split_position<uint32_t>(static_cast<uint32_t>(i), static_cast<uint32_t>(rows), static_cast<uint32_t>(columns),
                                  static_cast<uint32_t>(pixel));
}

}}}  // namespace tandem::v0::cuda
