// A small convolutional network for 28x28 images.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of LeNet.
struct LeNetOptions {
  int64_t in_channels = 1;   ///< of the images
  int64_t num_classes = 10;  ///< number of logits
};

/// images [N, in_channels, 28, 28] -> logits [N, num_classes]: two 5x5 convolutions, each followed by ReLU and 2x2 max
/// pooling, then two linear layers. Initial values are those of the layers. Y. LeCun et al., "Gradient-based learning
/// applied to document recognition", 1998, with more channels.
class TANDEM_API LeNet : public nn::Layer {
 public:
  /// Throws ValueError unless both sizes are at least 1.
  explicit LeNet(const LeNetOptions& options = {});
  Tensor forward(const Tensor& images) override;

  nn::Conv2d& conv1;  ///< to 32 channels, with fused ReLU
  nn::Conv2d& conv2;  ///< to 64 channels, with fused ReLU
  nn::Linear& fc1;    ///< to 128 features, with fused ReLU
  nn::Linear& fc2;    ///< to the logits
};

}}}  // namespace tandem::v0::models
