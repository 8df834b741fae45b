// Padding of tensors.
#pragma once

#include <tandem/base/macros.h>
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

}}  // namespace tandem::v0
