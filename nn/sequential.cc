#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor Sequential::forward(const Tensor& input) {
  Tensor value = input;
  for (Layer* layer : *this) value = (*layer)(value);
  return value;
}

}}}  // namespace tandem::v0::nn
