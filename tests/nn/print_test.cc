#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

struct Net : nn::Module {
  Net() {
    body.append<nn::Conv2d>(3, 64, 3, {.stride = {2, 1}, .padding = 1, .bias = false});
    body.append<nn::BatchNorm2d>(64, {.activation = nn::Activation::kRelu});
    body.append<nn::MaxPool2d>(2);
    body.append<nn::Flatten>();
    body.append<nn::Dropout>(0.25);
    head.weight.requires_grad_(false);
  }

  nn::Sequential& body = add<nn::Sequential>("body");
  nn::Linear& head = add<nn::Linear>("head", 8, 10, {.activation = nn::Activation::kRelu});
  nn::Module& tied = add<nn::Module>("tied");
  td::Tensor& again = tied.add_parameter("weight", head.weight);
  td::Tensor& scale = add_parameter("scale", td::zeros({3}, {td::kFloat64}));
};

TEST(PrintModule, PrintsTreeWithShapesAndCounts) {
  const Net net;
  const std::string expected =
      "Net                                                               1949  scale [3] float64\n"
      "  body: Sequential                                                1856\n"
      "    0: Conv2d(3, 64, kernel 3x3, stride 2x1, padding 1, no bias)  1728  weight [64, 3, 3, 3]\n"
      "    1: BatchNorm2d(64, relu)                                       128  weight [64], bias [64]; "
      "buffers running_mean [64], running_var [64], num_batches_tracked [] int64\n"
      "    2: MaxPool2d(kernel 2x2, stride 2, padding 0)\n"
      "    3: Flatten(1, -1)\n"
      "    4: Dropout(0.25)\n"
      "  head: Linear(8, 10, relu)                                         90  weight [10, 8] (frozen), bias [10]\n"
      "  tied: Module                                                      80  weight [10, 8] = head.weight (frozen)\n"
      "parameters: 1949 values in 6 tensors, 1869 trainable, 7.6 KiB\n"
      "buffers: 129 values in 3 tensors, 520 B";
  EXPECT_EQ(to_string(net), expected);
  std::ostringstream out;
  out << net;
  EXPECT_EQ(out.str(), expected);
}

TEST(PrintModule, PrintsModuleWithoutParameters) {
  EXPECT_EQ(to_string(nn::ReLU()),
            "ReLU\n"
            "parameters: 0 values in 0 tensors, 0 trainable, 0 B\n"
            "buffers: 0 values in 0 tensors, 0 B");
}

TEST(PrintModule, ExtraReprShowsLayerOptions) {
  EXPECT_EQ(nn::Linear(3, 2).extra_repr(), "3, 2");
  EXPECT_EQ(nn::Linear(3, 2, {.bias = false}).extra_repr(), "3, 2, no bias");
  EXPECT_EQ(nn::Conv2d(4, 6, {3, 2}, {.dilation = 2, .groups = 2, .activation = nn::Activation::kRelu}).extra_repr(),
            "4, 6, kernel 3x2, stride 1, padding 0, dilation 2, groups 2, relu");
  EXPECT_EQ(nn::BatchNorm2d(5, {.eps = 0.001, .momentum = 0.5, .affine = false}).extra_repr(),
            "5, eps 0.001, momentum 0.5, not affine");
  EXPECT_EQ(nn::BatchNorm1d(5, {.momentum = {}, .track_running_stats = false, .activation = nn::Activation::kRelu})
                .extra_repr(),
            "5, cumulative average, no running statistics, relu");
  EXPECT_EQ(nn::BatchNorm2d(5, {.activation = nn::Activation::kRelu6}).extra_repr(), "5, relu6");
  EXPECT_EQ(nn::InstanceNorm1d(5).extra_repr(), "5");
  EXPECT_EQ(nn::InstanceNorm2d(5, {.momentum = 0.5, .affine = true, .track_running_stats = true}).extra_repr(),
            "5, momentum 0.5, affine, running statistics");
  EXPECT_EQ(nn::GroupNorm(2, 6, {.eps = 0.001, .affine = false}).extra_repr(), "2, 6, eps 0.001, not affine");
  EXPECT_EQ(nn::RMSNorm(td::Shape{4, 2}, {.eps = 0.001, .elementwise_affine = false}).extra_repr(),
            "[4, 2], eps 0.001, not affine");
  EXPECT_EQ(nn::LayerNorm(8).extra_repr(), "8");
  EXPECT_EQ(nn::LayerNorm(td::Shape{4, 2}, {.eps = 0.001, .bias = false}).extra_repr(), "[4, 2], eps 0.001, no bias");
  EXPECT_EQ(nn::LayerNorm(8, {.affine = false}).extra_repr(), "8, not affine");
  EXPECT_EQ(nn::Embedding(65, 16).extra_repr(), "65, 16");
  EXPECT_EQ(nn::MultiheadAttention(12, 3).extra_repr(), "12, heads 3");
  EXPECT_EQ(nn::MultiheadAttention(12, 3, {.bias = false, .is_causal = true}).extra_repr(),
            "12, heads 3, no bias, causal");
  EXPECT_EQ(nn::MultiheadAttention(12, 3, {.dropout = 0.1, .kdim = 5, .vdim = 7}).extra_repr(),
            "12, heads 3, kdim 5, vdim 7, dropout 0.1");
  EXPECT_EQ(nn::MaxPool2d(3, {.stride = td::Size2d(2), .dilation = 2, .ceil_mode = true}).extra_repr(),
            "kernel 3x3, stride 2, padding 0, ceil mode, dilation 2");
  EXPECT_EQ(nn::AvgPool2d(3, {.padding = 1, .count_include_pad = false}).extra_repr(),
            "kernel 3x3, stride 3, padding 1, padding not counted");
  EXPECT_EQ(nn::AdaptiveAvgPool2d({1, 2}).extra_repr(), "output 1x2");
  EXPECT_EQ(nn::GELU().extra_repr(), "");
  EXPECT_EQ(nn::GELU(td::GeluApproximation::kTanh).extra_repr(), "tanh");
  EXPECT_EQ(nn::Tanh().extra_repr(), "");
  EXPECT_EQ(nn::Hardtanh(-2, 0.5).extra_repr(), "-2, 0.5");
  EXPECT_EQ(nn::Softmax(1).extra_repr(), "1");
  EXPECT_EQ(nn::PReLU(3).extra_repr(), "3");
  EXPECT_EQ(nn::MaxPool1d(3, {.stride = 2, .dilation = 2}).extra_repr(), "kernel 3, stride 2, padding 0, dilation 2");
  EXPECT_EQ(nn::AvgPool2d(2, {.divisor_override = 3}).extra_repr(), "kernel 2x2, stride 2, padding 0, divisor 3");
  EXPECT_EQ(nn::AdaptiveAvgPool1d(4).extra_repr(), "output 4");
  EXPECT_EQ(nn::AdaptiveMaxPool2d({std::nullopt, 7}).extra_repr(), "output keepx7");
  EXPECT_EQ(nn::MaxUnpool2d(2, {.padding = 1}).extra_repr(), "kernel 2x2, stride 2, padding 1");
  EXPECT_EQ(nn::ReflectionPad2d(2).extra_repr(), "padding 2");
  EXPECT_EQ(nn::ZeroPad1d({1, 0}).extra_repr(), "padding [1, 0]");
  EXPECT_EQ(nn::ConstantPad2d({1, 2, 3, 4}, 0.5).extra_repr(), "padding [1, 2, 3, 4], value 0.5");
  EXPECT_EQ(nn::Upsample({.scale_factor = {2}}).extra_repr(), "scale 2, nearest");
  EXPECT_EQ(nn::UpsamplingBilinear2d({.size = {4, 6}}).extra_repr(), "size [4, 6], bilinear, align corners");
  EXPECT_EQ(nn::PixelShuffle(3).extra_repr(), "factor 3");
  EXPECT_EQ(nn::ChannelShuffle(4).extra_repr(), "groups 4");
  EXPECT_EQ(nn::Bilinear(2, 3, 4, {.bias = false}).extra_repr(), "2, 3, 4, no bias");
  EXPECT_EQ(nn::Unflatten(-1, td::Shape{2, 3}).extra_repr(), "-1, [2, 3]");
  EXPECT_EQ(nn::Conv2d(2, 3, {4, 3}, {.padding = td::kSame}).extra_repr(), "2, 3, kernel 4x3, stride 1, padding same");
  EXPECT_EQ(nn::Conv1d(4, 6, 3, {.stride = 2, .padding = 1, .dilation = 3, .groups = 2}).extra_repr(),
            "4, 6, kernel 3, stride 2, padding 1, dilation 3, groups 2");
  EXPECT_EQ(nn::ConvTranspose1d(4, 6, 3, {.stride = 3, .groups = 2, .bias = false}).extra_repr(),
            "4, 6, kernel 3, stride 3, padding 0, groups 2, no bias");
  EXPECT_EQ(nn::ConvTranspose2d(
                4, 6, {3, 2},
                {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2, .dilation = {1, 2}})
                .extra_repr(),
            "4, 6, kernel 3x2, stride 2x3, padding 1x0, output padding 1x2, dilation 1x2, groups 2");
  EXPECT_EQ(nn::Conv2d(3, 2, 3, {.padding = 1, .padding_mode = td::PadMode::kReflect}).extra_repr(),
            "3, 2, kernel 3x3, stride 1, padding 1, reflect");
  EXPECT_EQ(nn::Upsample({.scale_factor = {2, 0.5}, .mode = td::InterpolateMode::kBicubic}).extra_repr(),
            "scale 2 x 0.5, bicubic");
  EXPECT_EQ(nn::Linear(7, 33, {.activation = nn::Activation::kGeluTanh}).extra_repr(), "7, 33, gelu tanh");
  EXPECT_EQ(nn::Linear(7, 33, {.activation = nn::Activation::kGelu}).extra_repr(), "7, 33, gelu");
  EXPECT_EQ(nn::Embedding(3, 2, {.padding_idx = -2}).extra_repr(), "3, 2, padding index -2");
  EXPECT_EQ(nn::CELU().extra_repr(), "1");
  EXPECT_EQ(nn::Softmin(1).type_name(), "Softmin");
}

}  // namespace
