// A multilayer perceptron for 28x28 images.
#pragma once

#include <tandem/tandem.h>

namespace models {

/// images [N, 1, 28, 28] -> logits [N, 10], through two hidden layers of 1024.
struct Mlp : tandem::nn::Layer {
  tandem::nn::Linear& fc1 = add<tandem::nn::Linear>("fc1", 784, 1024);
  tandem::nn::Linear& fc2 = add<tandem::nn::Linear>("fc2", 1024, 1024);
  tandem::nn::Linear& fc3 = add<tandem::nn::Linear>("fc3", 1024, 10);

  tandem::Tensor forward(const tandem::Tensor& images) override {
    tandem::Tensor h = tandem::relu(fc1(images.flatten(1)));
    return fc3(tandem::relu(fc2(h)));
  }
};

}  // namespace models
