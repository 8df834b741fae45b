// A multilayer perceptron for 28x28 images.
#pragma once

#include <tandem/tandem.h>

namespace models {

/// images [N, 1, 28, 28] -> logits [N, 10], through two hidden layers of 1024.
struct Mlp : tandem::nn::Layer {
  // The first two layers have a fused ReLU.
  tandem::nn::Linear& fc1 = add<tandem::nn::Linear>("fc1", 784, 1024, tandem::nn::LinearOptions{.relu = true});
  tandem::nn::Linear& fc2 = add<tandem::nn::Linear>("fc2", 1024, 1024, tandem::nn::LinearOptions{.relu = true});
  tandem::nn::Linear& fc3 = add<tandem::nn::Linear>("fc3", 1024, 10);

  tandem::Tensor forward(const tandem::Tensor& images) override { return fc3(fc2(fc1(images.flatten(1)))); }
};

}  // namespace models
