// Kernels of interpolate. Images are [N, C, H, W], row-major or channels-last. Private to ops/resize/.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// The elements from which an element of the result is computed.
enum class ResizeKind { kNearest, kNearestExact, kLinear, kCubic };

/// The linear map of one axis, or its transpose, which computes the gradient.
struct ResizeAxis {
  int64_t in = 1;    ///< elements before resizing
  int64_t out = 1;   ///< elements after resizing
  double scale = 1;  ///< of coordinates, rounded to the type in which they are computed
  ResizeKind kind = ResizeKind::kNearest;
  bool align_corners = false;
  bool transposed = false;  ///< maps `out` elements to `in` elements

  TANDEM_HOST_DEVICE int64_t num_sources() const { return transposed ? out : in; }
  TANDEM_HOST_DEVICE int64_t num_results() const { return transposed ? in : out; }
  TANDEM_HOST_DEVICE int num_taps() const {
    return kind == ResizeKind::kCubic ? 4 : kind == ResizeKind::kLinear ? 2 : 1;
  }
};

/// The map in arrays, which CPU kernels read: result i is the sum of weights[t] times source index[t] for t in
/// [begin[i], begin[i + 1]); indices ascend.
struct ResizeTable {
  int64_t num_sources;
  int64_t num_results;
  int num_taps;  ///< of every result; 0: it varies
  const int64_t* begin;
  const int32_t* index;
  const void* weights;  ///< of the accumulation dtype
};

/// Axis: ResizeAxis or ResizeTable.
template <class Axis>
struct ResizeShape {
  int64_t batch;
  int64_t channels;
  Axis height;
  Axis width;
  bool channels_last;
};

/// The map in both forms: GPU kernels read `computed`, CPU kernels `tables` (null pointers on GPUs).
struct ResizeMap {
  ResizeShape<ResizeAxis> computed;
  ResizeShape<ResizeTable> tables;
};

// clang-format off
TANDEM_KERNELS(
/// out = the map of height and width applied to `in`.
void resize(const KernelContext& context, DType dtype, const ResizeMap& map, const void* in, void* out);
)
// clang-format on

}}  // namespace tandem::v0
