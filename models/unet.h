// A U-Net, O. Ronneberger et al., "U-Net: Convolutional networks for biomedical image segmentation", 2015, with group
// norm.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/module.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// Options of UNet.
struct UNetOptions {
  int64_t channels = 3;  ///< of input and output
  int64_t width = 32;    ///< channels of the first level; each further level has twice as many
  int64_t levels = 3;    ///< each level after the first halves the image
  int64_t groups = 8;    ///< of the norms
};

/// images [N, channels, H, W] -> [N, channels, H, W]; H and W are multiples of 2^(levels - 1). On the way down, blocks
/// `down<i>` and 2x2 maxima; on the way up, bilinear interpolation, concatenation with the result of the same level,
/// and blocks `up<i>`; finally a 1x1 convolution `out`. A block is two 3x3 convolutions, each followed by group norm
/// and SiLU. Initial values are those of the layers.
class TANDEM_API UNet : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1 and `groups` divides width.
  explicit UNet(const UNetOptions& options = {});
  Tensor forward(const Tensor& images) override;

  std::vector<nn::Sequential*> down;  ///< the first level first
  std::vector<nn::Sequential*> up;    ///< the deepest level first
  nn::Conv2d* out = nullptr;          ///< to the output's channels
};

}}}  // namespace tandem::v0::models
