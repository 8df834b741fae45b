#include <tandem/ops/common/images.h>

#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 { namespace ops {

Tensor ImageForm::images(const Tensor& tensor) const {
  const NoGradGuard no_grad;
  const Tensor out = is_signal ? unsqueeze(tensor, -2) : tensor;
  return has_batch ? out : unsqueeze(out, 0);
}

Tensor ImageForm::restore(const Tensor& images) const {
  if (!is_signal && has_batch) return images;
  const Tensor single = has_batch ? images : squeeze(images, 0);
  const Tensor out = is_signal ? squeeze(single, -2) : single;
  out.impl().is_view = false;
  return out;
}

bool has_inner_channels(const Tensor& images) {
  return is_channels_last(images) && !(images.is_contiguous() && images.shape()[1] == 1);
}

Tensor in_order(const Tensor& tensor, bool channels_last) {
  return channels_last ? ops::channels_last(tensor) : row_major(tensor);
}

Tensor empty_in_order(const Shape& shape, TensorOptions options, bool channels_last) {
  return channels_last ? empty_channels_last(shape, options) : empty(shape, options);
}

}}}  // namespace tandem::v0::ops
