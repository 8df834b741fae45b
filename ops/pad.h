// Padding of tensors.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/ops/size2d.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Values of the elements that pad adds; the examples pad [1, 2, 3] by 2 on both sides.
enum class PadMode {
  kConstant,   ///< a number
  kReflect,    ///< mirrored at the edge, which is not repeated: [3, 2, 1, 2, 3, 2, 1]
  kReplicate,  ///< the element at the edge: [1, 1, 1, 2, 3, 3, 3]
  kCircular,   ///< the elements at the opposite edge: [2, 3, 1, 2, 3, 1, 2]
};

/// A copy of `input` with elements added at the edges. `padding` has the numbers of elements before and after the last
/// dimension, then before and after the dimension in front of it, and so on, as in PyTorch; a negative number removes
/// elements.
///
/// Any dtype. kConstant sets the new elements to `value` and pads any dimensions. The other modes pad the last 1, 2 or
/// 3 dimensions of an input with one or two dimensions in front of them. The result is channels-last if the input is
/// (in the other modes, if two dimensions are padded), else row-major. Saves nothing but, in the other modes, the
/// positions of the elements; where elements repeat, their gradients are added in ascending order.
///
/// Throws ShapeError if `padding` has too many numbers or an odd number of them, removes more elements than there are,
/// or is not below (kReflect) or above (kCircular) the dimension's size; ValueError if `value` is not representable in
/// the dtype, or not 0 in another mode than kConstant.
TANDEM_OP Tensor pad(const Tensor& input, const Shape& padding, PadMode mode = PadMode::kConstant, Scalar value = 0);

/// Options of unfold and fold, as in a convolution.
struct FoldOptions {
  Size2d dilation = 1;  ///< distance between the elements of a window
  Size2d padding = 0;   ///< rows and columns of zeros on each side of the image
  Size2d stride = 1;    ///< distance between neighbouring windows
};

/// The windows of images, as torch.nn.functional.unfold: input [N, C, H, W] or [C, H, W] -> [N, C * kh * kw, L] or
/// [C * kh * kw, L], where L windows fit. Any dtype. Throws ShapeError, also if no window fits, and ValueError for an
/// option out of range.
TANDEM_OP Tensor unfold(const Tensor& input, Size2d kernel_size, FoldOptions options = {});
/// Images of size output_size from their windows; elements in several windows are added in ascending order. The inverse
/// shapes of unfold: [N, C * kh * kw, L] -> [N, C, H, W], also without N. Half types are summed in float32.
TANDEM_OP Tensor fold(const Tensor& input, Size2d output_size, Size2d kernel_size, FoldOptions options = {});

}}  // namespace tandem::v0
