// Pooling: one number for each window of an image.
//
// Common to all: input [N, C, H, W] (ShapeError), floating (DTypeError), of any strides; half types are computed in float32 and
// rounded once.  The result is channels-last where the input is, else row-major; so is the gradient.  Windows begin at
// i * stride - padding, i = 0, 1 ...; there are floor((size + 2 padding - extent) / stride) + 1 of them, extent = dilation *
// (kernel_size - 1) + 1, rounded up with ceil_mode, except for a last one that would begin behind the image and its padding on
// the left or top.  Sizes of kernels and strides below 1, paddings below 0 or above half of the kernel, and any of them above
// 2^31 - 1, throw ValueError; empty images, those with a side above 2^31 - 1 and those smaller than a window ShapeError.  All
// gradients can be differentiated again.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of max_pool2d.
struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  ///< kernel_size where not given
  Size2d padding = 0;                 ///< on each side; counts as -infinity
  Size2d dilation = 1;                ///< distance of a window's elements
  bool ceil_mode = false;             ///< rounds the number of windows up
};

/// Options of avg_pool2d.
struct AvgPool2dOptions {
  std::optional<Size2d> stride = {};  ///< kernel_size where not given
  Size2d padding = 0;                 ///< on each side; zeros
  bool ceil_mode = false;             ///< rounds the number of windows up
  bool count_include_pad = true;      ///< whether the padding counts among the numbers that are averaged
};

/// The largest element of each window, NaN if there is one.
///
/// Saves the place of the (first) largest element of each window, one byte each for kernels of fewer than 256 elements, else four;
/// the gradient goes there.  Throws ValueError for kernels of 2^31 elements and more.
TANDEM_OP Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options = {});

/// The mean of each window; the part of a window behind the padding never counts.  Saves nothing.
TANDEM_OP Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options = {});

/// The means of output_size windows that cover the image: window i of n covers floor(i size / n) up to, not including,
/// ceil((i + 1) size / n).  Saves nothing.  Throws ValueError for an output size below 1.
TANDEM_OP Tensor adaptive_avg_pool2d(const Tensor& input, Size2d output_size);

}}  // namespace tandem::v0
