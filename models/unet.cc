#include <tandem/models/unet.h>

#include <string>

#include <tandem/base/error.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/resize.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

constexpr int64_t kMaxUNetLevels = 16;

void append_layers(nn::Sequential& block, int64_t in_channels, int64_t out_channels, int64_t groups) {
  for (const int64_t channels : {in_channels, out_channels}) {
    block.append<nn::Conv2d>(channels, out_channels, 3, {.padding = 1});
    block.append<nn::GroupNorm>(groups, out_channels);
    block.append<nn::SiLU>();
  }
}

}  // namespace

UNet::UNet(const UNetOptions& options) {
  TANDEM_CHECK(ValueError, options.levels >= 1 && options.levels <= kMaxUNetLevels, "UNet: levels is ", options.levels,
               ", expected 1 <= levels <= ", kMaxUNetLevels);
  int64_t channels = options.channels;
  const auto add_block = [&](const char* name, int64_t level, int64_t in_channels) {
    channels = options.width << level;
    auto& block = add<nn::Sequential>(name + std::to_string(level));
    append_layers(block, in_channels, channels, options.groups);
    return &block;
  };
  for (int64_t level = 0; level < options.levels; ++level) down.push_back(add_block("down", level, channels));
  for (int64_t level = options.levels - 1; level-- > 0;)
    up.push_back(add_block("up", level, channels + (options.width << level)));
  out = &add<nn::Conv2d>("out", channels, options.channels, 1);
}

Tensor UNet::forward(const Tensor& images) {
  std::vector<Tensor> results;
  Tensor x = images;
  for (nn::Sequential* const block : down) {
    if (!results.empty()) x = max_pool2d(x, 2);
    x = (*block)(x);
    results.push_back(x);
  }
  for (nn::Sequential* const block : up) {
    results.pop_back();
    const Tensor& same_level = results.back();
    x = interpolate(x, {.size = {same_level.size(2), same_level.size(3)}, .mode = InterpolateMode::kBilinear});
    x = (*block)(cat({same_level, x}, 1));
  }
  return (*out)(x);
}

}}}  // namespace tandem::v0::models
