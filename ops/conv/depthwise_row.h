// Kernels of depthwise convolutions for one row of results. Private to ops/. This header includes nothing, because
// files for wider instruction sets include it. Sizes are `long`, which is int64_t.
//
// Groups have D = 1, 2, 4 or 8 channels and as many filters. Filters, and the sums of their gradient, are
// [tap][i][channel]: the factors of the i-th channels of the groups, for every channel of the result.
#pragma once

namespace tandem { inline namespace v0 {

/// Positions x_begin, ..., x_end - 1 of a row, and the rows of taps that are inside the source. Strides in elements.
template <class T>
struct DepthwiseRow {
  long channels;
  long width;  ///< D
  long x_begin, x_end;
  long inside_begin, inside_end;  ///< positions whose taps are all inside the source
  long taps;                      ///< per row
  long pixels;                    ///< of a row of the source
  long first, step, tap_step;     ///< pixel of tap 0 of position 0; pixels to the next position; to the next tap
  long rows;                      ///< of taps
  const T* source;                ///< pixel 0 of the first row
  long source_row;                ///< from one row of taps to the next
  T* filters;                     ///< tap 0 of the first row
  long filter_row, filter_tap;    ///< from one row of taps to the next; from one tap to the next
  T* results;                     ///< or their gradient: of position 0
  long result_step;
  const T* bias;  ///< may be null
  bool relu;
};

template <class T>
struct DepthwiseKernels {
  /// results = sum over the taps of source * filters, plus the bias.
  void (*sum)(const DepthwiseRow<T>& row);
  /// filters += source * results, summed over the positions.
  void (*add_gradients)(const DepthwiseRow<T>& row);
};

extern const DepthwiseKernels<float> kDepthwiseAvx2, kDepthwiseAvx512;
extern const DepthwiseKernels<double> kDepthwiseDouble;  ///< only D = 1

}}  // namespace tandem::v0
