// How the pools' kernels number elements on a GPU.  Private to the *.cu files of ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// An element of images [batch, channels, rows, columns]: `image` counts channels-last images, or planes.
struct PoolPosition {
  int64_t image;
  int64_t row;
  int64_t column;
  int64_t channel;  ///< of a channels-last image, else 0
};

template <class Index>
__device__ PoolPosition split_position(Index i, Index rows, Index columns, Index pixel) {
  const Index at = i / pixel, line = at / columns, image = line / rows;
  return {static_cast<int64_t>(image), static_cast<int64_t>(line - image * rows),
          static_cast<int64_t>(at - line * columns), static_cast<int64_t>(i - at * pixel)};
}

/// Element i of n, in the order of memory; pixel: numbers side by side, the channels or 1.
__device__ inline PoolPosition position_of(int64_t i, int64_t n, int64_t rows, int64_t columns, int64_t pixel) {
  if (n > INT32_MAX) return split_position<int64_t>(i, rows, columns, pixel);
  // Divisions of 64 bits take several times as long.
  return split_position<uint32_t>(static_cast<uint32_t>(i), static_cast<uint32_t>(rows), static_cast<uint32_t>(columns),
                                  static_cast<uint32_t>(pixel));
}

}}}  // namespace tandem::v0::cuda
