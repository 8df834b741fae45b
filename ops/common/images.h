// Images as arguments of kernels: their dimensions and their memory order. Private to ops/.
#pragma once

#include <tandem/ops/common/common.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The dimensions of an argument: images [N, C, H, W], signals [N, C, L], or one of them without N.
struct ImageForm {
  bool is_signal = false;
  bool has_batch = true;

  /// A view [N, C, H, W] with N = 1 and H = 1 where they are missing. Not recorded.
  Tensor images(const Tensor& tensor) const;
  /// The inverse for a result, whose memory no other tensor uses.
  Tensor restore(const Tensor& images) const;
};

/// Whether kernels read the images channels-last, else row-major. If both memory orders are the same (one channel, or
/// one pixel), the longer of the two dimensions is innermost.
bool has_inner_channels(const Tensor& images);
/// `tensor` in the requested memory order: channels-last or row-major.
Tensor in_order(const Tensor& tensor, bool channels_last);
Tensor empty_in_order(const Shape& shape, TensorOptions options, bool channels_last);

}}}  // namespace tandem::v0::ops
