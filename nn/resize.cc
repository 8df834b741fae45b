#include <tandem/nn/resize.h>

namespace tandem { inline namespace v0 { namespace nn {

Tensor Upsample::forward(const Tensor& input) { return interpolate(input, options_); }

std::string Upsample::extra_repr() const {
  constexpr const char* kModes[] = {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "area"};
  std::string text;
  if (!options_.size.empty()) text = str("size ", options_.size);
  for (size_t i = 0; i < options_.scale_factor.size(); ++i) {
    text += str(i == 0 ? "scale " : " x ", options_.scale_factor[i]);
  }
  text += str(", ", kModes[static_cast<int>(options_.mode)]);
  return options_.align_corners ? text + ", align corners" : text;
}

Tensor PixelShuffle::forward(const Tensor& input) { return pixel_shuffle(input, upscale_factor_); }

std::string PixelShuffle::extra_repr() const { return str("factor ", upscale_factor_); }

Tensor PixelUnshuffle::forward(const Tensor& input) { return pixel_unshuffle(input, downscale_factor_); }

std::string PixelUnshuffle::extra_repr() const { return str("factor ", downscale_factor_); }

Tensor ChannelShuffle::forward(const Tensor& input) { return channel_shuffle(input, groups_); }

std::string ChannelShuffle::extra_repr() const { return str("groups ", groups_); }

}}}  // namespace tandem::v0::nn
