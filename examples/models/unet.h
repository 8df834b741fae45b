// A U-Net, O. Ronneberger et al., "U-Net: Convolutional networks for biomedical image segmentation", 2015, with group
// norm, as diffusion models use it.
#pragma once

#include <tandem/tandem.h>

#include <string>
#include <vector>

namespace models {

/// Sizes of UNet.
struct UNetOptions {
  int64_t channels = 3;  ///< of input and output
  int64_t width = 32;    ///< channels of the first level; each further level has twice as many
  int64_t levels = 3;    ///< each level after the first halves the image
  int64_t groups = 8;    ///< of the norms
};

/// Two 3x3 convolutions, each followed by group norm and SiLU.
struct UNetBlock : tandem::nn::Sequential {
  UNetBlock(int64_t in_channels, int64_t out_channels, int64_t groups) {
    for (const int64_t channels : {in_channels, out_channels}) {
      append<tandem::nn::Conv2d>(channels, out_channels, 3, tandem::nn::Conv2dOptions{.padding = 1});
      append<tandem::nn::GroupNorm>(groups, out_channels);
      append<tandem::nn::SiLU>();
    }
  }
};

/// images [N, channels, H, W] -> [N, channels, H, W]; H and W are multiples of 2^(levels - 1). On the way down, blocks
/// `down<i>` and 2x2 maxima; on the way up, bilinear interpolation, concatenation with the result of the same level,
/// and blocks `up<i>`; finally a 1x1 convolution `out`.
struct UNet : tandem::nn::Layer {
  explicit UNet(const UNetOptions& options = {}) {
    int64_t channels = options.channels;
    for (int64_t level = 0; level < options.levels; ++level) {
      const int64_t width = options.width << level;
      down.push_back(&add<UNetBlock>("down" + std::to_string(level), channels, width, options.groups));
      channels = width;
    }
    for (int64_t level = options.levels - 1; level-- > 0;) {
      const int64_t width = options.width << level;
      up.push_back(&add<UNetBlock>("up" + std::to_string(level), channels + width, width, options.groups));
      channels = width;
    }
    out = &add<tandem::nn::Conv2d>("out", channels, options.channels, 1);
  }

  tandem::Tensor forward(const tandem::Tensor& images) override {
    std::vector<tandem::Tensor> results;
    tandem::Tensor x = images;
    for (UNetBlock* const block : down) {
      if (!results.empty()) x = tandem::max_pool2d(x, 2);
      x = (*block)(x);
      results.push_back(x);
    }
    for (UNetBlock* const block : up) {
      results.pop_back();
      const tandem::Tensor& same_level = results.back();
      x = tandem::interpolate(
          x, {.size = {same_level.size(2), same_level.size(3)}, .mode = tandem::InterpolateMode::kBilinear});
      x = (*block)(tandem::cat({same_level, x}, 1));
    }
    return (*out)(x);
  }

  std::vector<UNetBlock*> down;
  std::vector<UNetBlock*> up;  ///< the deepest first
  tandem::nn::Conv2d* out = nullptr;
};

}  // namespace models
