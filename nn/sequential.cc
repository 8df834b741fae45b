#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor Sequential::forward(const Tensor& input) {
  Tensor value = input;
  for (Layer* layer : layers_) value = (*layer)(value);
  return value;
}

Layer& Sequential::operator[](int64_t index) const {
  TANDEM_CHECK(IndexError, index >= 0 && index < size(), "Sequential: index is ", index, ", expected 0 <= index < ",
               size());
  return *layers_[static_cast<size_t>(index)];
}

}}}  // namespace tandem::v0::nn
