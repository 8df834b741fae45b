// MobileNetV2, M. Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", CVPR 2018.
#pragma once

#include <tandem/tandem.h>

#include <memory>

namespace models {

/// Convolution, "0" in keys, and batch norm with ReLU6, "1".
struct ConvNormRelu6 : tandem::nn::Sequential {
  ConvNormRelu6(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
    append<tandem::nn::Conv2d>(
        in_channels, out_channels, kernel,
        tandem::nn::Conv2dOptions{.stride = stride, .padding = (kernel - 1) / 2, .groups = groups},
        tandem::nn::ConvLayerOptions{.bias = false});
    append<tandem::nn::BatchNorm2d>(out_channels, tandem::nn::BatchNormOptions{.relu6 = true});
  }
};

/// A 1x1 convolution to `expansion` times the channels (none if that is 1), a depthwise 3x3 convolution with the
/// stride, and a 1x1 convolution without activation; plus x, if the shape stays.
struct InvertedResidual : tandem::nn::Layer {
  InvertedResidual(int64_t in_channels, int64_t out_channels, int64_t stride, int64_t expansion)
      : conv(add<tandem::nn::Sequential>("conv")), is_residual(stride == 1 && in_channels == out_channels) {
    const int64_t width = expansion * in_channels;
    if (expansion != 1) conv.append<ConvNormRelu6>(in_channels, width, 1);
    conv.append<ConvNormRelu6>(width, width, 3, stride, width);
    conv.append<tandem::nn::Conv2d>(width, out_channels, 1, tandem::nn::Conv2dOptions{},
                                    tandem::nn::ConvLayerOptions{.bias = false});
    conv.append<tandem::nn::BatchNorm2d>(out_channels);
  }

  tandem::Tensor forward(const tandem::Tensor& x) override { return is_residual ? conv(x) + x : conv(x); }

  tandem::nn::Sequential& conv;
  bool is_residual;
};

/// images [N, 3, H, W] -> logits [N, classes]. Keys as in torchvision's mobilenet_v2.
struct MobileNetV2 : tandem::nn::Layer {
  explicit MobileNetV2(int64_t classes = 1000, double dropout = 0.2)
      : features(add<tandem::nn::Sequential>("features")), classifier(add<tandem::nn::Sequential>("classifier")) {
    struct Group {
      int64_t expansion, channels, blocks, stride;
    };
    constexpr Group kGroups[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    features.append<ConvNormRelu6>(3, 32, 3, 2);
    int64_t channels = 32;
    for (const Group& group : kGroups) {
      for (int64_t block = 0; block < group.blocks; ++block) {
        features.append<InvertedResidual>(channels, group.channels, block == 0 ? group.stride : 1, group.expansion);
        channels = group.channels;
      }
    }
    features.append<ConvNormRelu6>(channels, 1280, 1);
    classifier.append<tandem::nn::Dropout>(dropout);
    classifier.append<tandem::nn::Linear>(1280, classes);
  }

  tandem::Tensor forward(const tandem::Tensor& images) override {
    return classifier(tandem::adaptive_avg_pool2d(features(images), 1).flatten(1));
  }

  tandem::nn::Sequential& features;
  tandem::nn::Sequential& classifier;
};

}  // namespace models
