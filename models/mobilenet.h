// MobileNetV2, M. Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", CVPR 2018.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// A group of inverted residual blocks of MobileNetV2.
struct InvertedResidualSetting {
  int64_t expand_ratio;  ///< each block widens its input by this factor
  int64_t channels;      ///< of the results, before width_mult
  int64_t blocks;        ///< number of blocks
  int64_t stride;        ///< of the first block
};

/// Options of MobileNetV2, with torchvision's names and defaults.
struct MobileNetV2Options {
  int64_t num_classes = 1000;  ///< number of logits
  double width_mult = 1;       ///< factor of the numbers of channels
  /// The groups of blocks.
  std::vector<InvertedResidualSetting> inverted_residual_setting = {
      {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t round_nearest = 8;  ///< numbers of channels are rounded to multiples of this number
  double dropout = 0.2;       ///< probability, before the last layer
};

/// images [N, 3, H, W] -> logits [N, num_classes]: a 3x3 convolution of stride 2; blocks of a 1x1 convolution that
/// widens, a depthwise 3x3 convolution and a 1x1 convolution without activation, with a residual connection if the
/// shape is unchanged; a 1x1 convolution; global average pooling; dropout and a linear layer. The other convolutions
/// are followed by ReLU6.
///
/// Keys as in torchvision's mobilenet_v2: features.0.0.weight .. classifier.1.bias. Initial values as in torchvision:
/// convolutions Kaiming normal with fan-out, batch norms ones and zeros, the linear layer normal with standard
/// deviation 0.01, its bias zeros.
class TANDEM_API MobileNetV2 : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes and strides are at least 1, there is a group of blocks, and 0 <= dropout <= 1.
  explicit MobileNetV2(const MobileNetV2Options& options = {});
  Tensor forward(const Tensor& images) override;

  nn::Sequential& features;    ///< all convolutions
  nn::Sequential& classifier;  ///< dropout and the linear layer
};

}}}  // namespace tandem::v0::models
