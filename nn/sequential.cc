#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor ConditionalLayer::forward(const Tensor&) {
  throw ValueError(
      str(type_name(),
          ": called without its condition; call it, and the Sequential that contains it, with (x, condition)"));
}

Tensor Sequential::run(const Tensor& input, const Tensor* condition) {
  Tensor value = input;
  for (Layer* layer : *this) {
    if (auto* const conditional = condition == nullptr ? nullptr : dynamic_cast<ConditionalLayer*>(layer)) {
      value = (*conditional)(value, *condition);
    } else if (auto* const sequential = condition == nullptr ? nullptr : dynamic_cast<Sequential*>(layer)) {
      value = (*sequential)(value, *condition);
    } else {
      value = (*layer)(value);
    }
  }
  return value;
}

}}}  // namespace tandem::v0::nn
