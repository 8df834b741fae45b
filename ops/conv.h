// Convolutions.
//
// Vocabulary.  A weight [O, C / groups, kh, kw] holds O *filters*; a *tap* is one of the kh x kw places of a filter.  Input
// and output channels are cut into `groups` equal runs, and each run of filters sees the run of channels of its number.
//
// Results are *channels-last*: [N, O, H, W] in shape, N H W O in memory (docs/decisions/005-convolutions.md).  Inputs may
// have any strides; one that is not channels-last is copied.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of conv2d.
struct Conv2dOptions {
  Size2d stride = 1;    ///< distance between neighbouring windows
  Size2d padding = 0;   ///< rows and columns of zeros on each side of the input
  Size2d dilation = 1;  ///< distance between the taps of a filter
  int64_t groups = 1;   ///< divides both numbers of channels
};

/// out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * input[n, first(o) + c, y * stride + i * dilation -
/// padding, x * stride + j * dilation - padding], where first(o) is the first channel of o's group and values outside of
/// the input are 0.
///
/// input [N, C, H, W], weight [O, C / groups, kh, kw], bias [O] [optional] -> [N, O, H', W'] with H' = floor((H + 2 padding -
/// dilation (kh - 1) - 1) / stride) + 1, W' likewise.  Floating, equal dtypes, one device.  How float32 is computed is a rule
/// of the shape and the machine's instructions (docs/decisions/005-convolutions.md); half types are computed in float32 and
/// rounded once.
///
/// Backward saves input and weight.  Gradients: of the input channels-last, of weight and bias written into the leaf's slot
/// where it has no other contribution; each is computed only where it is needed.  Differentiable any number of times.
/// Throws DeviceError, DTypeError, ShapeError, ValueError (an option out of its range).
TANDEM_OP Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {});

/// max(0, conv2d(...)), one operation: shapes, dtypes and errors of `conv2d`.
///
/// Backward saves input, weight and the output, and masks its gradient where the output is 0 in the same pass that sums it
/// for the bias.
TANDEM_OP Tensor conv2d_relu(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                             Conv2dOptions options = {});

}}  // namespace tandem::v0
