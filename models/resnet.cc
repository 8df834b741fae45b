#include <tandem/models/resnet.h>

#include <tandem/base/error.h>
#include <tandem/nn/init.h>
#include <tandem/ops/pool.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

constexpr nn::BatchNormOptions kNormWithRelu = {.activation = nn::Activation::kRelu};

/// The batch norm after a convolution would cancel its bias.
nn::Conv2dOptions convolution(int64_t stride, int64_t padding) {
  return {.stride = stride, .padding = padding, .bias = false};
}

/// The common part of the blocks: the shortcut, and the batch norm that is added to it.
class ShortcutBlock : public nn::Layer {
 public:
  virtual nn::BatchNorm2d& last_norm() = 0;

 protected:
  void add_shortcut(int64_t in_channels, int64_t out_channels, int64_t stride) {
    if (stride == 1 && in_channels == out_channels) return;
    downsample_ = &add<nn::Sequential>("downsample");
    downsample_->append<nn::Conv2d>(in_channels, out_channels, 1, convolution(stride, 0));
    downsample_->append<nn::BatchNorm2d>(out_channels);
  }
  Tensor shortcut(const Tensor& x) { return downsample_ != nullptr ? (*downsample_)(x) : x; }

 private:
  nn::Sequential* downsample_ = nullptr;
};

class BasicBlock : public ShortcutBlock {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(int64_t in_channels, int64_t width, int64_t stride)
      : conv1_(add<nn::Conv2d>("conv1", in_channels, width, 3, convolution(stride, 1))),
        bn1_(add<nn::BatchNorm2d>("bn1", width, kNormWithRelu)),
        conv2_(add<nn::Conv2d>("conv2", width, width, 3, convolution(1, 1))),
        bn2_(add<nn::BatchNorm2d>("bn2", width)) {
    add_shortcut(in_channels, width, stride);
  }
  Tensor forward(const Tensor& x) override { return bn2_.add_relu(conv2_(bn1_(conv1_(x))), shortcut(x)); }
  nn::BatchNorm2d& last_norm() override { return bn2_; }

 private:
  nn::Conv2d& conv1_;
  nn::BatchNorm2d& bn1_;
  nn::Conv2d& conv2_;
  nn::BatchNorm2d& bn2_;
};

class Bottleneck : public ShortcutBlock {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in_channels, int64_t width, int64_t stride)
      : conv1_(add<nn::Conv2d>("conv1", in_channels, width, 1, convolution(1, 0))),
        bn1_(add<nn::BatchNorm2d>("bn1", width, kNormWithRelu)),
        conv2_(add<nn::Conv2d>("conv2", width, width, 3, convolution(stride, 1))),
        bn2_(add<nn::BatchNorm2d>("bn2", width, kNormWithRelu)),
        conv3_(add<nn::Conv2d>("conv3", width, kExpansion * width, 1, convolution(1, 0))),
        bn3_(add<nn::BatchNorm2d>("bn3", kExpansion * width)) {
    add_shortcut(in_channels, kExpansion * width, stride);
  }
  Tensor forward(const Tensor& x) override { return bn3_.add_relu(conv3_(bn2_(conv2_(bn1_(conv1_(x))))), shortcut(x)); }
  nn::BatchNorm2d& last_norm() override { return bn3_; }

 private:
  nn::Conv2d& conv1_;
  nn::BatchNorm2d& bn1_;
  nn::Conv2d& conv2_;
  nn::BatchNorm2d& bn2_;
  nn::Conv2d& conv3_;
  nn::BatchNorm2d& bn3_;
};

/// Appends `count` blocks, the first with the stride; returns the number of channels of the result.
template <class Block>
int64_t append_blocks(nn::Sequential& group, int64_t in_channels, int64_t width, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    group.append<Block>(in_channels, width, i == 0 ? stride : 1);
    in_channels = Block::kExpansion * width;
  }
  return in_channels;
}

int64_t last_channels(ResNetBlock block, int64_t width) {
  return 8 * width * (block == ResNetBlock::kBasic ? BasicBlock::kExpansion : Bottleneck::kExpansion);
}

}  // namespace

ResNet::ResNet(ResNetBlock block, const std::vector<int64_t>& layers, const ResNetOptions& options)
    : conv1(add<nn::Conv2d>("conv1", 3, options.width, options.small_images ? 3 : 7,
                            options.small_images ? convolution(1, 1) : convolution(2, 3))),
      bn1(add<nn::BatchNorm2d>("bn1", options.width, kNormWithRelu)),
      layer1(add<nn::Sequential>("layer1")),
      layer2(add<nn::Sequential>("layer2")),
      layer3(add<nn::Sequential>("layer3")),
      layer4(add<nn::Sequential>("layer4")),
      fc(add_replaceable<nn::Linear>("fc", last_channels(block, options.width), options.num_classes)),
      small_images_(options.small_images) {
  TANDEM_CHECK(ValueError, layers.size() == 4, "ResNet: layers has ", layers.size(),
               " numbers of blocks, expected one for each of the 4 groups");
  int64_t channels = options.width;
  int64_t width = options.width;
  size_t i = 0;
  for (nn::Sequential* group : {&layer1, &layer2, &layer3, &layer4}) {
    TANDEM_CHECK(ValueError, layers[i] >= 1, "ResNet: layers[", i, "] is ", layers[i], ", expected at least 1");
    const int64_t stride = i == 0 ? 1 : 2;
    channels = block == ResNetBlock::kBasic ? append_blocks<BasicBlock>(*group, channels, width, layers[i], stride)
                                            : append_blocks<Bottleneck>(*group, channels, width, layers[i], stride);
    width *= 2;
    ++i;
  }
  for (nn::Module* module : modules()) {
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module))
      nn::init::kaiming_normal_(conv->weight, 0, nn::init::Mode::kFanOut, nn::init::Nonlinearity::kRelu);
    if (auto* residual = dynamic_cast<ShortcutBlock*>(module); residual != nullptr && options.zero_init_residual)
      nn::init::zeros_(residual->last_norm().weight);
  }
}

Tensor ResNet::forward(const Tensor& images) {
  Tensor h = bn1(conv1(images));
  if (!small_images_) h = max_pool2d(h, 3, {.stride = 2, .padding = 1});
  h = layer4(layer3(layer2(layer1(h))));
  return fc(adaptive_avg_pool2d(h, 1).flatten(1));
}

}}}  // namespace tandem::v0::models
