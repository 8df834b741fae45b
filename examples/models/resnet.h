// A residual network for 32x32 images.
#pragma once

#include <tandem/tandem.h>

#include <string>

namespace models {

/// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)). The shortcut is the identity or, if the shape changes, a 1x1
/// convolution with batch norm (`downsample`).
struct ResidualBlock : tandem::nn::Layer {
  ResidualBlock(int64_t in_channels, int64_t out_channels, int64_t stride)
      : conv1(add<tandem::nn::Conv2d>("conv1", in_channels, out_channels, 3, convolution(stride, 1), kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", out_channels, with_relu())),
        conv2(add<tandem::nn::Conv2d>("conv2", out_channels, out_channels, 3, convolution(1, 1), kNoBias)),
        bn2(add<tandem::nn::BatchNorm2d>("bn2", out_channels)) {
    if (stride == 1 && in_channels == out_channels) return;
    downsample = &add<tandem::nn::Sequential>("downsample");
    downsample->append<tandem::nn::Conv2d>(in_channels, out_channels, 1, convolution(stride, 0), kNoBias);
    downsample->append<tandem::nn::BatchNorm2d>(out_channels);
  }

  tandem::Tensor forward(const tandem::Tensor& x) override {
    const tandem::Tensor shortcut = downsample != nullptr ? (*downsample)(x) : x;
    return bn2.add_relu(conv2(bn1(conv1(x))), shortcut);
  }

  static tandem::nn::Conv2dOptions convolution(int64_t stride, int64_t padding) {
    return {.stride = stride, .padding = padding};
  }
  /// The batch norm after a convolution would cancel its bias.
  static constexpr tandem::nn::LinearOptions kNoBias = {.bias = false};
  /// Batch norm with fused ReLU.
  static tandem::nn::BatchNorm2dOptions with_relu() { return {.relu = true}; }

  tandem::nn::Conv2d& conv1;
  tandem::nn::BatchNorm2d& bn1;
  tandem::nn::Conv2d& conv2;
  tandem::nn::BatchNorm2d& bn2;
  tandem::nn::Sequential* downsample = nullptr;
};

/// images [N, 3, H, W] -> logits [N, classes], as K. He et al., "Deep residual learning for image recognition", CVPR
/// 2016, with a stem for small images: one 3x3 convolution of stride 1, no pooling. Then four groups of two blocks with
/// width, 2 width, 4 width and 8 width channels, of which the last three halve the image; global average pooling; a
/// linear layer. Keys as in torchvision: conv1, bn1, layer1.0.conv1 .. layer4.1.bn2, layer2.0.downsample.0, fc.
struct ResNet18 : tandem::nn::Layer {
  explicit ResNet18(int64_t width = 64, int64_t classes = 10)
      : conv1(add<tandem::nn::Conv2d>("conv1", 3, width, 3, ResidualBlock::convolution(1, 1), ResidualBlock::kNoBias)),
        bn1(add<tandem::nn::BatchNorm2d>("bn1", width, ResidualBlock::with_relu())),
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

}  // namespace models
