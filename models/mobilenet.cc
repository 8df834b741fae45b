#include <tandem/models/mobilenet.h>

#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/init.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/pool.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

/// Convolution, "0" in keys, and batch norm with ReLU6, "1".
class ConvNormRelu6 : public nn::Sequential {
 public:
  ConvNormRelu6(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
    // The batch norm would cancel a bias of the convolution.
    append<nn::Conv2d>(in_channels, out_channels, kernel,
                       {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups, .bias = false});
    append<nn::BatchNorm2d>(out_channels, {.activation = nn::Activation::kRelu6});
  }
};

class InvertedResidual : public nn::Layer {
 public:
  InvertedResidual(int64_t in_channels, int64_t out_channels, int64_t stride, int64_t expand_ratio)
      : conv_(add<nn::Sequential>("conv")), is_residual_(stride == 1 && in_channels == out_channels) {
    const int64_t width = saturating_mul(expand_ratio, in_channels);
    if (expand_ratio != 1) conv_.append<ConvNormRelu6>(in_channels, width, 1);
    conv_.append<ConvNormRelu6>(width, width, 3, stride, width);
    conv_.append<nn::Conv2d>(width, out_channels, 1, {.bias = false});
    conv_.append<nn::BatchNorm2d>(out_channels);
  }
  Tensor forward(const Tensor& x) override { return is_residual_ ? conv_(x) + x : conv_(x); }

 private:
  nn::Sequential& conv_;
  bool is_residual_;
};

/// `channels` rounded to the nearest multiple of `divisor`; if that is less than 90 % of `channels`, the next multiple.
int64_t make_divisible(double channels, int64_t divisor) {
  const double half = static_cast<double>(divisor) / 2;
  const int64_t rounded = std::max(divisor, static_cast<int64_t>(channels + half) / divisor * divisor);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + divisor : rounded;
}

}  // namespace

MobileNetV2::MobileNetV2(const MobileNetV2Options& options)
    : features(add<nn::Sequential>("features")), classifier(add<nn::Sequential>("classifier")) {
  TANDEM_CHECK(ValueError, !options.inverted_residual_setting.empty(),
               "MobileNetV2: inverted_residual_setting is empty; expected at least one group of blocks");
  TANDEM_CHECK(ValueError, options.round_nearest >= 1 && options.width_mult > 0, "MobileNetV2: round_nearest is ",
               options.round_nearest, " and width_mult ", options.width_mult,
               ", expected at least 1 and a positive number");
  const auto scaled = [&](int64_t channels, double factor) {
    return make_divisible(static_cast<double>(channels) * factor, options.round_nearest);
  };
  int64_t channels = scaled(32, options.width_mult);
  features.append<ConvNormRelu6>(3, channels, 3, 2);
  for (const InvertedResidualSetting& group : options.inverted_residual_setting) {
    const int64_t out_channels = scaled(group.channels, options.width_mult);
    for (int64_t block = 0; block < group.blocks; ++block) {
      features.append<InvertedResidual>(channels, out_channels, block == 0 ? group.stride : 1, group.expand_ratio);
      channels = out_channels;
    }
  }
  const int64_t last_channels = scaled(1280, std::max(1.0, options.width_mult));
  features.append<ConvNormRelu6>(channels, last_channels, 1);
  classifier.append<nn::Dropout>(options.dropout);
  const auto& linear = classifier.append<nn::Linear>(last_channels, options.num_classes);

  for (nn::Module* module : modules()) {
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module))
      nn::init::kaiming_normal_(conv->weight, 0, nn::init::Mode::kFanOut);
  }
  nn::init::normal_(linear.weight, 0, 0.01);
  nn::init::zeros_(linear.bias);
}

Tensor MobileNetV2::forward(const Tensor& images) {
  return classifier(adaptive_avg_pool2d(features(images), 1).flatten(1));
}

}}}  // namespace tandem::v0::models
