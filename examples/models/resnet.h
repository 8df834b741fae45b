// Residual networks, as K. He et al., "Deep residual learning for image recognition", CVPR 2016.
#pragma once

#include <tandem/tandem.h>

#include <string>

namespace models {

/// A block of convolutions with a shortcut around them: the identity or, if the shape changes, a 1x1 convolution with
/// batch norm (`downsample`).
struct ShortcutBlock : tandem::nn::Layer {
  tandem::nn::Sequential* downsample = nullptr;

  static tandem::nn::Conv2dOptions convolution(int64_t stride, int64_t padding) {
    return {.stride = stride, .padding = padding};
  }
  /// The batch norm after a convolution would cancel its bias.
  static constexpr tandem::nn::ConvLayerOptions kNoBias = {.bias = false};
  /// Batch norm with fused ReLU.
  static tandem::nn::BatchNormOptions with_relu() { return {.relu = true}; }

 protected:
  void add_shortcut(int64_t in_channels, int64_t out_channels, int64_t stride) {
    if (stride == 1 && in_channels == out_channels) return;
    downsample = &add<tandem::nn::Sequential>("downsample");
    downsample->append<tandem::nn::Conv2d>(in_channels, out_channels, 1, convolution(stride, 0), kNoBias);
    downsample->append<tandem::nn::BatchNorm2d>(out_channels);
  }
  tandem::Tensor shortcut(const tandem::Tensor& x) { return downsample != nullptr ? (*downsample)(x) : x; }
};

/// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)).
struct ResidualBlock : ShortcutBlock {
  ResidualBlock(int64_t in_channels, int64_t out_channels, int64_t stride)
      : conv1(add<tandem::nn::Conv2d>("conv1", in_channels, out_channels, 3, convolution(stride, 1), kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", out_channels, with_relu())),
        conv2(add<tandem::nn::Conv2d>("conv2", out_channels, out_channels, 3, convolution(1, 1), kNoBias)),
        bn2(add<tandem::nn::BatchNorm2d>("bn2", out_channels)) {
    add_shortcut(in_channels, out_channels, stride);
  }

  tandem::Tensor forward(const tandem::Tensor& x) override { return bn2.add_relu(conv2(bn1(conv1(x))), shortcut(x)); }

  tandem::nn::Conv2d& conv1;
  tandem::nn::BatchNorm2d& bn1;
  tandem::nn::Conv2d& conv2;
  tandem::nn::BatchNorm2d& bn2;
};

/// images [N, 3, H, W] -> logits [N, classes], with a stem for small images: one 3x3 convolution of stride 1, no
/// pooling. Then four groups of two blocks with width, 2 width, 4 width and 8 width channels, of which the last three
/// halve the image; global average pooling; a linear layer. Keys as in torchvision: conv1, bn1, layer1.0.conv1 ..
/// layer4.1.bn2, layer2.0.downsample.0, fc.
struct ResNet18 : tandem::nn::Layer {
  explicit ResNet18(int64_t width = 64, int64_t classes = 10)
      : conv1(add<tandem::nn::Conv2d>("conv1", 3, width, 3, ShortcutBlock::convolution(1, 1), ShortcutBlock::kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", width, ShortcutBlock::with_relu())),
        layer1(add<tandem::nn::Sequential>("layer1")),
        layer2(add<tandem::nn::Sequential>("layer2")),
        layer3(add<tandem::nn::Sequential>("layer3")),
        layer4(add<tandem::nn::Sequential>("layer4")),
        fc(add<tandem::nn::Linear>("fc", 8 * width, classes)) {
    int64_t channels = width;
    int64_t stride = 1;
    for (tandem::nn::Sequential* layer : {&layer1, &layer2, &layer3, &layer4}) {
      const int64_t out_channels = stride * channels;
      layer->append<ResidualBlock>(channels, out_channels, stride);
      layer->append<ResidualBlock>(out_channels, out_channels, 1);
      channels = out_channels;
      stride = 2;
    }
  }

  tandem::Tensor forward(const tandem::Tensor& images) override {
    const tandem::Tensor h = layer4(layer3(layer2(layer1(bn1(conv1(images))))));
    return fc(tandem::adaptive_avg_pool2d(h, 1).flatten(1));
  }

  tandem::nn::Conv2d& conv1;
  tandem::nn::BatchNorm2d& bn1;
  tandem::nn::Sequential& layer1;
  tandem::nn::Sequential& layer2;
  tandem::nn::Sequential& layer3;
  tandem::nn::Sequential& layer4;
  tandem::nn::Linear& fc;
};

/// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + shortcut(x)): a 1x1 convolution to `width` channels, a 3x3
/// one with the stride, and a 1x1 one to 4 width channels.
struct BottleneckBlock : ShortcutBlock {
  BottleneckBlock(int64_t in_channels, int64_t width, int64_t stride)
      : conv1(add<tandem::nn::Conv2d>("conv1", in_channels, width, 1, convolution(1, 0), kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", width, with_relu())),
        conv2(add<tandem::nn::Conv2d>("conv2", width, width, 3, convolution(stride, 1), kNoBias)),
        bn2(add<tandem::nn::BatchNorm2d>("bn2", width, with_relu())),
        conv3(add<tandem::nn::Conv2d>("conv3", width, 4 * width, 1, convolution(1, 0), kNoBias)),
        bn3(add<tandem::nn::BatchNorm2d>("bn3", 4 * width)) {
    add_shortcut(in_channels, 4 * width, stride);
  }

  tandem::Tensor forward(const tandem::Tensor& x) override {
    return bn3.add_relu(conv3(bn2(conv2(bn1(conv1(x))))), shortcut(x));
  }

  tandem::nn::Conv2d& conv1;
  tandem::nn::BatchNorm2d& bn1;
  tandem::nn::Conv2d& conv2;
  tandem::nn::BatchNorm2d& bn2;
  tandem::nn::Conv2d& conv3;
  tandem::nn::BatchNorm2d& bn3;
};

/// images [N, 3, H, W] -> logits [N, classes] by torchvision's resnet50: a 7x7 convolution and a 3x3 maximum, both of
/// stride 2; groups of 3, 4, 6 and 3 bottleneck blocks, of which the last three halve the image by the 3x3 convolution
/// of their first block; global average pooling; a linear layer. torchvision's keys.
struct ResNet50 : tandem::nn::Layer {
  explicit ResNet50(int64_t classes = 1000)
      : conv1(add<tandem::nn::Conv2d>("conv1", 3, 64, 7, ShortcutBlock::convolution(2, 3), ShortcutBlock::kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", 64, ShortcutBlock::with_relu())) {
    int64_t channels = 64;
    for (int64_t group = 0; group < 4; ++group) {
      constexpr int64_t kBlocks[] = {3, 4, 6, 3};
      const int64_t width = 64 << group;
      groups[group] = &add<tandem::nn::Sequential>("layer" + std::to_string(group + 1));
      for (int64_t block = 0; block < kBlocks[group]; ++block) {
        groups[group]->append<BottleneckBlock>(channels, width, block == 0 && group > 0 ? 2 : 1);
        channels = 4 * width;
      }
    }
    fc = &add<tandem::nn::Linear>("fc", channels, classes);
  }

  tandem::Tensor forward(const tandem::Tensor& images) override {
    tandem::Tensor h = tandem::max_pool2d(bn1(conv1(images)), 3, {.stride = 2, .padding = 1});
    for (tandem::nn::Sequential* group : groups) h = (*group)(h);
    return (*fc)(tandem::adaptive_avg_pool2d(h, 1).flatten(1));
  }

  tandem::nn::Conv2d& conv1;
  tandem::nn::BatchNorm2d& bn1;
  tandem::nn::Sequential* groups[4] = {};
  tandem::nn::Linear* fc = nullptr;
};

}  // namespace models
