// Pooling over windows of images and of signals.
//
// Common to all: input [N, C, H, W] or [C, H, W], in one dimension [N, C, L] or [C, L] (ShapeError), floating
// (DTypeError), any strides; half types are computed in float32 and rounded once. Result and gradient are channels-last
// if the input is, else row-major; results and gradients of adaptive_max_pool and max_unpool are always row-major.
// Window i begins at i * stride - padding, i = 0, 1, .... With extent = dilation * (kernel_size - 1) + 1 there are
// floor((size + 2 padding - extent) / stride) + 1 windows. ceil_mode rounds up instead, but omits a last window that
// would begin after the image and its left or top padding. ValueError: kernel size or stride below 1, padding below 0
// or above half of the kernel size, or one of them above 2^31 - 1. ShapeError: an image that is empty, smaller than a
// window, or has a side above 2^31 - 1. An input without channels has an empty result (PyTorch: an error, except in
// adaptive_avg_pool). All gradients are differentiable.
//
// The forms with indices also return the position of the first largest element of each window, y * W + x in its image
// (-1 for a window without elements), without gradient.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of max_pool1d.
struct MaxPool1dOptions {
  std::optional<int64_t> stride = {};  ///< default: kernel_size
  int64_t padding = 0;                 ///< on each side; counts as -infinity
  int64_t dilation = 1;                ///< distance between elements of a window
  bool ceil_mode = false;              ///< rounds the number of windows up
};

/// Options of max_pool2d.
struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  ///< default: kernel_size
  Size2d padding = 0;                 ///< on each side; counts as -infinity
  Size2d dilation = 1;                ///< distance between elements of a window
  bool ceil_mode = false;             ///< rounds the number of windows up
};

/// Options of avg_pool1d.
struct AvgPool1dOptions {
  std::optional<int64_t> stride = {};  ///< default: kernel_size
  int64_t padding = 0;                 ///< on each side; counts as 0
  bool ceil_mode = false;              ///< rounds the number of windows up
  bool count_include_pad = true;       ///< whether padding counts in the divisor
};

/// Options of avg_pool2d.
struct AvgPool2dOptions {
  std::optional<Size2d> stride = {};             ///< default: kernel_size
  Size2d padding = 0;                            ///< on each side; counts as 0
  bool ceil_mode = false;                        ///< rounds the number of windows up
  bool count_include_pad = true;                 ///< whether padding counts in the divisor
  std::optional<int64_t> divisor_override = {};  ///< divides all sums
};

/// Options of max_unpool1d, equal to the options of the inverted max_pool1d.
struct MaxUnpool1dOptions {
  std::optional<int64_t> stride = {};       ///< default: kernel_size
  int64_t padding = 0;                      ///< on each side
  std::optional<int64_t> output_size = {};  ///< L' of the result; default: (L - 1) stride - 2 padding + kernel_size
};

/// Options of max_unpool2d, equal to the options of the inverted max_pool2d.
struct MaxUnpool2dOptions {
  std::optional<Size2d> stride = {};       ///< default: kernel_size
  Size2d padding = 0;                      ///< on each side
  std::optional<Size2d> output_size = {};  ///< of the result; default: (size - 1) stride - 2 padding + kernel_size
};

/// The largest element of each window; NaN if the window contains NaN.
///
/// Saves the position of the first largest element of each window, to which the gradient is added: one byte per window
/// for kernels of fewer than 256 elements, else four. Throws ValueError for kernels of 2^31 or more elements.
TANDEM_OP Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options = {});
/// max_pool2d of signals.
TANDEM_OP Tensor max_pool1d(const Tensor& input, int64_t kernel_size, const MaxPool1dOptions& options = {});
/// max_pool2d and the index of each maximum.
TANDEM_OP ValuesIndices max_pool2d_with_indices(const Tensor& input, Size2d kernel_size,
                                                const MaxPool2dOptions& options = {});
/// max_pool1d and the index of each maximum.
TANDEM_OP ValuesIndices max_pool1d_with_indices(const Tensor& input, int64_t kernel_size,
                                                const MaxPool1dOptions& options = {});

/// The mean of each window; the part of a window beyond the right or bottom padding never counts. Saves nothing. Throws
/// ValueError for a divisor of 0.
TANDEM_OP Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options = {});
/// avg_pool2d of signals.
TANDEM_OP Tensor avg_pool1d(const Tensor& input, int64_t kernel_size, const AvgPool1dOptions& options = {});

/// Means of output_size windows that cover the image: window i of n covers [floor(i * size / n), ceil((i + 1) * size /
/// n)). Saves nothing. Throws ValueError for an output size below 1.
TANDEM_OP Tensor adaptive_avg_pool2d(const Tensor& input, OutputSize2d output_size);
/// adaptive_avg_pool2d of signals.
TANDEM_OP Tensor adaptive_avg_pool1d(const Tensor& input, int64_t output_size);

/// Maxima of the windows of adaptive_avg_pool2d; NaN if the window contains NaN. Saves the indices, to which the
/// gradient is added. Throws ValueError for an output size below 1.
TANDEM_OP Tensor adaptive_max_pool2d(const Tensor& input, OutputSize2d output_size);
/// adaptive_max_pool2d of signals.
TANDEM_OP Tensor adaptive_max_pool1d(const Tensor& input, int64_t output_size);
/// adaptive_max_pool2d and the index of each maximum.
TANDEM_OP ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& input, OutputSize2d output_size);
/// adaptive_max_pool1d and the index of each maximum.
TANDEM_OP ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& input, int64_t output_size);

/// Zeros with the elements of `input` at `indices`, which max_pool2d_with_indices has returned; where they repeat, the
/// last element is stored. `indices` is int64 (DTypeError) of input's shape (ShapeError) in [0, H' W') of the result
/// (IndexError). Saves indices. Throws ValueError unless output_size differs from its default by less than the stride.
TANDEM_OP Tensor max_unpool2d(const Tensor& input, const Tensor& indices, Size2d kernel_size,
                              const MaxUnpool2dOptions& options = {});
/// max_unpool2d of signals, whose result is [N, C, L'].
TANDEM_OP Tensor max_unpool1d(const Tensor& input, const Tensor& indices, int64_t kernel_size,
                              const MaxUnpool1dOptions& options = {});

}}  // namespace tandem::v0
