// Pooling over windows of images.
//
// Common to all: input [N, C, H, W] (ShapeError), floating (DTypeError), any strides; half types are computed in
// float32 and rounded once. Result and gradient are channels-last if the input is, else row-major. Window i begins at i
// * stride - padding, i = 0, 1, .... With extent = dilation * (kernel_size - 1) + 1 there are floor((size + 2 padding -
// extent) / stride) + 1 windows. ceil_mode rounds up instead, but omits a last window that would begin after the image
// and its left or top padding. ValueError: kernel size or stride below 1, padding below 0 or above half of the kernel
// size, or one of them above 2^31 - 1. ShapeError: an image that is empty, smaller than a window, or has a side above
// 2^31 - 1. All gradients are differentiable.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of max_pool2d.
struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  ///< default: kernel_size
  Size2d padding = 0;                 ///< on each side; counts as -infinity
  Size2d dilation = 1;                ///< distance between elements of a window
  bool ceil_mode = false;             ///< rounds the number of windows up
};

/// Options of avg_pool2d.
struct AvgPool2dOptions {
  std::optional<Size2d> stride = {};  ///< default: kernel_size
  Size2d padding = 0;                 ///< on each side; counts as 0
  bool ceil_mode = false;             ///< rounds the number of windows up
  bool count_include_pad = true;      ///< whether padding counts in the divisor
};

/// The largest element of each window; NaN if the window has one.
///
/// Saves the position of the first largest element of each window, to which the gradient is added: one byte per window
/// for kernels of fewer than 256 elements, else four. Throws ValueError for kernels of 2^31 or more elements.
TANDEM_OP Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options = {});

/// The mean of each window; the part of a window beyond the right or bottom padding never counts. Saves nothing.
TANDEM_OP Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options = {});

/// Means of output_size windows that cover the image: window i of n covers [floor(i * size / n), ceil((i + 1) * size /
/// n)). Saves nothing. Throws ValueError for an output size below 1.
TANDEM_OP Tensor adaptive_avg_pool2d(const Tensor& input, Size2d output_size);

}}  // namespace tandem::v0
