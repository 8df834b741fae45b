// Residual networks, K. He et al., "Deep residual learning for image recognition", CVPR 2016.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/nn/norm.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// The block that a ResNet repeats: convolutions with a shortcut around them, which is the identity or, if the shape
/// changes, a 1x1 convolution with batch norm (`downsample`).
enum class ResNetBlock {
  kBasic,       ///< two 3x3 convolutions, the first with the stride
  kBottleneck,  ///< a 1x1 convolution, a 3x3 convolution with the stride, a 1x1 convolution to four times the width
};

/// Options of ResNet.
struct ResNetOptions {
  int64_t num_classes = 1000;       ///< number of logits
  bool zero_init_residual = false;  ///< the last batch norm of each block begins with weight 0
  int64_t width = 64;               ///< channels of the first convolution and width of the first group of blocks
  /// Begins with one 3x3 convolution of stride 1, for images of about 32x32, instead of a 7x7 convolution and a 3x3
  /// maximum, both of stride 2.
  bool small_images = false;
};

/// images [N, 3, H, W] -> logits [N, num_classes]: the first convolution; four groups of blocks with width, 2 width,
/// 4 width and 8 width channels, of which the last three halve the image; global average pooling; a linear layer.
///
/// Keys as in torchvision: conv1, bn1, layer1.0.conv1 .. layer2.0.downsample.0 .. layer4.1.bn2, fc. Initial values as
/// in torchvision: convolutions Kaiming normal with fan-out, batch norms ones and zeros, the linear layer as in
/// nn::Linear.
class TANDEM_API ResNet : public nn::Layer {
 public:
  /// `layers`: number of blocks of each of the four groups. Throws ValueError unless it has four elements, and all
  /// sizes are at least 1.
  ResNet(ResNetBlock block, const std::vector<int64_t>& layers, const ResNetOptions& options = {});
  Tensor forward(const Tensor& images) override;

  nn::Conv2d& conv1;               ///< the first convolution
  nn::BatchNorm2d& bn1;            ///< with fused ReLU
  nn::Sequential& layer1;          ///< the first group of blocks
  nn::Sequential& layer2;          ///< the second group
  nn::Sequential& layer3;          ///< the third group
  nn::Sequential& layer4;          ///< the last group
  nn::Replaceable<nn::Linear> fc;  ///< to the logits; replace_module("fc", ...) prepares for other classes

 private:
  bool small_images_;
};

/// ResNet with 2, 2, 2, 2 basic blocks; torchvision's resnet18.
class TANDEM_API ResNet18 : public ResNet {
 public:
  /// Throws as ResNet.
  explicit ResNet18(const ResNetOptions& options = {}) : ResNet(ResNetBlock::kBasic, {2, 2, 2, 2}, options) {}
};

/// ResNet with 3, 4, 6, 3 basic blocks; torchvision's resnet34.
class TANDEM_API ResNet34 : public ResNet {
 public:
  /// Throws as ResNet.
  explicit ResNet34(const ResNetOptions& options = {}) : ResNet(ResNetBlock::kBasic, {3, 4, 6, 3}, options) {}
};

/// ResNet with 3, 4, 6, 3 bottleneck blocks; torchvision's resnet50.
class TANDEM_API ResNet50 : public ResNet {
 public:
  /// Throws as ResNet.
  explicit ResNet50(const ResNetOptions& options = {}) : ResNet(ResNetBlock::kBottleneck, {3, 4, 6, 3}, options) {}
};

}}}  // namespace tandem::v0::models
