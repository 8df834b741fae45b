// Convolutions and transposed convolutions.
//
// Terms. A weight [O, C / groups, kh, kw] holds O *filters*; a *tap* is one of the kh x kw positions of a filter. Input
// and output channels are divided into `groups` equal ranges; filters of range i read the input channels of range i.
//
// Common to all: input, weight and bias (optional) have one floating dtype and one device. An input without a batch
// dimension gives a result without a batch dimension. Half types are computed in float32 and rounded once, after the
// bias was added. Differentiable any number of times; only needed gradients are computed. Errors: DeviceError,
// DTypeError, ShapeError, ValueError (an option out of range).
//
// Results, and gradients of inputs, are *channels-last*: [N, O, H, W] in shape, N H W O in memory
// (docs/decisions/005-convolutions.md); [N, O, L] is N L O in memory. Inputs may have any strides; an input that is not
// channels-last is copied.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The type of kSame.
struct SamePadding {};

/// The padding of a convolution of stride 1 whose result has the input's size: dilation * (kernel size - 1) zeros along
/// each side. Half of the zeros are before the input, half are after it. If the number is odd, the additional zero is
/// after the input.
inline constexpr SamePadding kSame{};

/// The option `padding` of convolutions: a number, `{height, width}`, or `kSame`.
class ConvPadding {
 public:
  /// Equal height and width.
  constexpr ConvPadding(int64_t both) : size_(both) {}
  constexpr ConvPadding(int64_t height, int64_t width) : size_(height, width) {}
  constexpr ConvPadding(Size2d size) : size_(size) {}
  constexpr ConvPadding(SamePadding) : size_(0), is_same_(true) {}

  constexpr bool is_same() const { return is_same_; }  ///< whether it is kSame
  constexpr Size2d size() const { return size_; }      ///< zeros before and after the input; 0 for kSame

 private:
  Size2d size_;
  bool is_same_ = false;
};

/// Options of conv1d (Size is int64_t) and conv2d (Size is Size2d).
template <class Size>
struct ConvOptions {
  Size stride = 1;          ///< distance between neighbouring windows
  ConvPadding padding = 0;  ///< zeros on each side of the input, or kSame; one number for conv1d
  Size dilation = 1;        ///< distance between the taps of a filter
  int64_t groups = 1;       ///< divides both numbers of channels
};
using Conv1dOptions = ConvOptions<int64_t>;  ///< of conv1d
using Conv2dOptions = ConvOptions<Size2d>;   ///< of conv2d

/// Options of conv_transpose1d (Size is int64_t) and conv_transpose2d (Size is Size2d).
template <class Size>
struct ConvTransposeOptions {
  Size stride = 1;          ///< distance between the windows of neighbouring inputs
  Size padding = 0;         ///< results that are omitted on each side
  Size output_padding = 0;  ///< results that are added at the bottom and right; less than stride or dilation
  int64_t groups = 1;       ///< divides both numbers of channels
  Size dilation = 1;        ///< distance between the taps of a filter
};
using ConvTranspose1dOptions = ConvTransposeOptions<int64_t>;  ///< of conv_transpose1d
using ConvTranspose2dOptions = ConvTransposeOptions<Size2d>;   ///< of conv_transpose2d

/// out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * input[n, first(o) + c, y * stride + i *
/// dilation - padding, x * stride + j * dilation - padding], where first(o) is the first channel of o's group, and
/// values outside the input are 0.
///
/// input [N, C, H, W] or [C, H, W], weight [O, C / groups, kh, kw], bias [O] -> [N, O, H', W'] or [O, H', W'] with H' =
/// floor((H + 2 padding - dilation (kh - 1) - 1) / stride) + 1, and W' by the same formula. The algorithm for float32
/// depends on the shape and the instruction set only (docs/decisions/005-convolutions.md).
///
/// Backward saves input and weight. The gradients of weight and bias are written into the leaf's gradient slot if they
/// are its only contribution.
TANDEM_OP Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {});

/// max(0, conv2d(...)) as one operation; shapes, dtypes and errors as for `conv2d`.
///
/// Backward saves input, weight and the output. It masks the gradient where the output is 0 in the pass that sums the
/// gradient of the bias.
TANDEM_OP Tensor conv2d_relu(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                             Conv2dOptions options = {});

/// conv2d of images of height 1: input [N, C, L] or [C, L], weight [O, C / groups, k], bias [O] -> [N, O, L'] or
/// [O, L'] with L' = floor((L + 2 padding - dilation (k - 1) - 1) / stride) + 1. Backward saves input and weight.
TANDEM_OP Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv1dOptions options = {});

/// The gradient of conv2d's input as a function of the gradient of its result, here `input`: out[n, o, y * stride + i *
/// dilation - padding, x * stride + j * dilation - padding] is bias[o] plus the sum of the products weight[c, o -
/// first(c), i, j] * input[n, c, y, x] that have this place, where first(c) is the first result channel of c's group
/// (V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016).
///
/// input [N, C, H, W] or [C, H, W] with H, W >= 1, weight [C, O / groups, kh, kw], bias [O] -> [N, O, H', W'] or
/// [O, H', W'] with H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1, at least 1, and W' by the
/// same formula. Backward saves input and weight.
TANDEM_OP Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                                  ConvTranspose2dOptions options = {});

/// conv_transpose2d of images of height 1: input [N, C, L] or [C, L], weight [C, O / groups, k], bias [O] -> [N, O, L']
/// or [O, L'] with L' = (L - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1.
TANDEM_OP Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                                  ConvTranspose1dOptions options = {});

}}  // namespace tandem::v0
