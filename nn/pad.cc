#include <tandem/nn/pad.h>

#include <algorithm>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Shape all_sides(int64_t dims, const Shape& sides, PadMode mode) {
  constexpr const char* kLayers[] = {"Constant", "Reflection", "Replication", "Circular"};  // of each mode
  const size_t count = static_cast<size_t>(2 * dims);
  TANDEM_CHECK(ValueError, sides.size() == 1 || sides.size() == count, kLayers[static_cast<int>(mode)], "Pad", dims,
               "d: padding is ", sides, ", expected one number or ", count);
  return sides.size() == 1 ? Shape(count, sides[0]) : sides;
}

}  // namespace

PaddingLayer::PaddingLayer(int64_t dims, const Padding& padding, PadMode mode, double value)
    : padding_(all_sides(dims, padding.sides, mode)), mode_(mode), value_(value) {}

Tensor PaddingLayer::forward(const Tensor& input) { return pad(input, padding_, mode_, value_); }

std::string PaddingLayer::extra_repr() const {
  const bool same = std::count(padding_.begin(), padding_.end(), padding_[0]) == padding_.dim();
  std::string text = same ? str("padding ", padding_[0]) : str("padding ", padding_);
  if (value_ != 0) text += str(", value ", value_);
  return text;
}

}}}  // namespace tandem::v0::nn
