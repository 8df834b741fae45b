// Convolutions.
//
// Terms. A weight [O, C / groups, kh, kw] holds O *filters*; a *tap* is one of the kh x kw positions of a filter. Input
// and output channels are divided into `groups` equal ranges; filters of range i read the input channels of range i.
//
// Results are *channels-last*: [N, O, H, W] in shape, N H W O in memory (docs/decisions/005-convolutions.md). Inputs
// may have any strides; an input that is not channels-last is copied.
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

/// out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * input[n, first(o) + c, y * stride + i *
/// dilation - padding, x * stride + j * dilation - padding], where first(o) is the first channel of o's group, and
/// values outside the input are 0.
///
/// input [N, C, H, W], weight [O, C / groups, kh, kw], bias [O] [optional] -> [N, O, H', W'] with H' = floor((H + 2
/// padding - dilation (kh - 1) - 1) / stride) + 1, and W' by the same formula. Floating, equal dtypes, one device. The
/// algorithm for float32 depends on the shape and the instruction set only (docs/decisions/005-convolutions.md); half
/// types are computed in float32 and rounded once.
///
/// Backward saves input and weight. The gradient of input is channels-last. The gradients of weight and bias are
/// written into the leaf's gradient slot if they are its only contribution. Only needed gradients are computed.
/// Differentiable any number of times. Throws DeviceError, DTypeError, ShapeError, ValueError (an option out of range).
TANDEM_OP Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {});

/// max(0, conv2d(...)) as one operation; shapes, dtypes and errors as for `conv2d`.
///
/// Backward saves input, weight and the output. It masks the gradient where the output is 0 in the pass that sums the
/// gradient of the bias.
TANDEM_OP Tensor conv2d_relu(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                             Conv2dOptions options = {});

}}  // namespace tandem::v0
