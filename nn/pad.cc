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

std::string text_of(const Shape& sides, double value) {
  const bool same = std::count(sides.begin(), sides.end(), sides[0]) == sides.dim();
  const std::string text = same ? str("padding ", sides[0]) : str("padding ", sides);
  return value == 0 ? text : str(text, ", value ", value);
}

}  // namespace

PaddingLayer::PaddingLayer(int64_t dims, const Padding& padding, PadMode mode, double value)
    : PaddingLayer(all_sides(dims, padding.sides, mode), mode, value) {}

PaddingLayer::PaddingLayer(const Shape& sides, PadMode mode, double value)
    : FunctionLayer([=](const Tensor& x) { return pad(x, sides, mode, value); }, text_of(sides, value)) {}

}}}  // namespace tandem::v0::nn
