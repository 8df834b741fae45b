#include <tandem/nn/resize.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

std::string text_of(const InterpolateOptions& options) {
  constexpr const char* kModes[] = {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "area"};
  std::string text;
  if (!options.size.empty()) text = str("size ", options.size);
  for (size_t i = 0; i < options.scale_factor.size(); ++i) {
    text += str(i == 0 ? "scale " : " x ", options.scale_factor[i]);
  }
  text += str(", ", kModes[static_cast<int>(options.mode)]);
  return options.align_corners ? text + ", align corners" : text;
}

}  // namespace

Upsample::Upsample(InterpolateOptions options)
    : FunctionLayer([options](const Tensor& x) { return interpolate(x, options); }, text_of(options)) {}

PixelShuffle::PixelShuffle(int64_t upscale_factor)
    : FunctionLayer([=](const Tensor& x) { return pixel_shuffle(x, upscale_factor); }, str("factor ", upscale_factor)) {
}

PixelUnshuffle::PixelUnshuffle(int64_t downscale_factor)
    : FunctionLayer([=](const Tensor& x) { return pixel_unshuffle(x, downscale_factor); },
                    str("factor ", downscale_factor)) {}

ChannelShuffle::ChannelShuffle(int64_t groups)
    : FunctionLayer([=](const Tensor& x) { return channel_shuffle(x, groups); }, str("groups ", groups)) {}

}}}  // namespace tandem::v0::nn
