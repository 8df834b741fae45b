// A small convolutional network for 28x28 images.
#pragma once

#include <tandem/tandem.h>

namespace models {

/// images [N, 1, 28, 28] -> logits [N, 10]: two 5x5 convolutions, each followed by ReLU and 2x2 max pooling, then two
/// linear layers. Y. LeCun et al., "Gradient-based learning applied to document recognition", 1998, with more channels.
struct LeNet : tandem::nn::Layer {
  // With fused ReLU.
  tandem::nn::Conv2d& conv1 = add<tandem::nn::Conv2d>("conv1", 1, 32, 5, tandem::nn::Conv2dOptions{},
                                                      tandem::nn::ConvLayerOptions{.relu = true});
  tandem::nn::Conv2d& conv2 = add<tandem::nn::Conv2d>("conv2", 32, 64, 5, tandem::nn::Conv2dOptions{},
                                                      tandem::nn::ConvLayerOptions{.relu = true});
  tandem::nn::Linear& fc1 = add<tandem::nn::Linear>("fc1", 64 * 4 * 4, 128, tandem::nn::LinearOptions{.relu = true});
  tandem::nn::Linear& fc2 = add<tandem::nn::Linear>("fc2", 128, 10);

  tandem::Tensor forward(const tandem::Tensor& images) override {
    tandem::Tensor h = tandem::max_pool2d(conv1(images), 2);  // 28 -> 24 -> 12
    h = tandem::max_pool2d(conv2(h), 2);                      // 12 -> 8 -> 4
    return fc2(fc1(h.flatten(1)));
  }
};

}  // namespace models
