#include <tandem/nn/conv.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/conv.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

TEST(Conv2d, ForwardAppliesAllOptions) {
  td::manual_seed(1);
  nn::Conv2d layer(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  EXPECT_EQ(layer.weight.shape(), td::Shape({6, 2, 3, 2}));
  EXPECT_EQ(layer.bias.shape(), td::Shape({6}));
  const td::Tensor x = td::randn({2, 4, 7, 5});
  const td::Tensor y = layer(x);
  EXPECT_EQ(y.shape(), td::Shape({2, 6, 4, 3}));
  const td::Tensor expected =
      td::conv2d(x, layer.weight, layer.bias, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());

  nn::Conv2d fused(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2},
                   {.relu = true});
  fused.load_state_dict(layer.state_dict());
  EXPECT_EQ(fused(x).to_vector<float>(), expected.relu().to_vector<float>());
}

TEST(Conv2d, GradientsReachWeightAndBias) {
  nn::Conv2d layer(1, 1, 1);
  const td::Tensor x = td::from_vector<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  layer(x).backward(td::from_vector<float>({1, -1, 0.5, 2}, {1, 1, 2, 2}));
  EXPECT_EQ(layer.weight.grad().item<float>(), 1 - 2 + 1.5f + 8);
  EXPECT_EQ(layer.bias.grad().item<float>(), 2.5f);
}

TEST(Conv2d, BiasCanBeDisabled) {
  const nn::Conv2d layer(2, 3, 5, {}, {.bias = false});
  EXPECT_FALSE(layer.bias.defined());
  EXPECT_EQ(layer.state_dict().tensors().size(), 1u);
}

TEST(Conv2d, InitialValuesAreUniformAsInPyTorch) {
  td::manual_seed(7);
  const nn::Conv2d layer(50, 100, {2, 4}, {.groups = 2});
  const double limit = 1 / std::sqrt(25.0 * 2 * 4);
  for (const td::Tensor& parameter : layer.parameters()) {
    const auto values = parameter.to_vector<double>();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -limit * 1.000001);
    EXPECT_LE(*high, limit * 1.000001);
    EXPECT_LT(*low, -0.9 * limit);
    EXPECT_GT(*high, 0.9 * limit);
  }
}

TEST(Conv2d, InvalidOptionsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv2d(0, 2, 3); }),
            "Conv2d: in_channels is 0 and out_channels 2, expected at least 1 each");
  EXPECT_EQ(error_text<td::ValueError>([] {
              nn::Conv2d(1, 2, {3, 0}, {.dilation = 2});
            }),
            "Conv2d: kernel_size is [3, 0], stride [1, 1] and dilation [2, 2], expected at least 1 each");
  EXPECT_EQ(error_text<td::ValueError>([] {
              nn::Conv2d(1, 2, 3, {.padding = {0, -1}});
            }),
            "Conv2d: padding is [0, -1], expected at least 0");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv2d(4, 6, 3, {.groups = 4}); }),
            "Conv2d: groups is 4, expected a divisor of in_channels 4 and out_channels 6");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv2d(4, 6, 3, {.groups = 0}); }),
            "Conv2d: groups is 0, expected a divisor of in_channels 4 and out_channels 6");
}

TEST(Conv2d, SamePaddingKeepsTheSize) {
  nn::Conv2d layer(2, 3, {4, 3}, {.padding = td::kSame});
  EXPECT_EQ(layer(td::ones({2, 5, 6})).shape(), td::Shape({3, 5, 6}));
  EXPECT_EQ(layer.extra_repr(), "2, 3, kernel 4x3, stride 1, padding same");
  EXPECT_EQ(error_text<td::ValueError>([] {
              nn::Conv2d(2, 3, 3, {.stride = {2, 1}, .padding = td::kSame});
            }),
            "Conv2d: stride is [2, 1], expected 1 if padding is kSame");
}

TEST(Conv1d, ForwardAppliesAllOptions) {
  const td::Conv1dOptions options{.stride = 2, .padding = 1, .dilation = 3, .groups = 2};
  nn::Conv1d layer(4, 6, 3, options), fused(4, 6, 3, options, {.relu = true});
  EXPECT_EQ(layer.weight.shape(), td::Shape({6, 2, 3}));
  EXPECT_EQ(layer.extra_repr(), "4, 6, kernel 3, stride 2, padding 1, dilation 3, groups 2");
  fused.load_state_dict(layer.state_dict());
  const td::Tensor x = td::randn({2, 4, 15}), expected = td::conv1d(x, layer.weight, layer.bias, options);
  EXPECT_EQ(layer(x).shape(), td::Shape({2, 6, 6}));
  EXPECT_EQ(layer(x).to_vector<float>(), expected.to_vector<float>());
  EXPECT_EQ(fused(x).to_vector<float>(), expected.relu().to_vector<float>());
}

TEST(Conv1d, InvalidOptionsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv1d(2, 3, 0); }),
            "Conv1d: kernel_size is 0, stride 1 and dilation 1, expected at least 1 each");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv1d(2, 3, 1, {.padding = -1}); }),
            "Conv1d: padding is -1, expected at least 0");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Conv1d(2, 3, 1, {.groups = 2}); }),
            "Conv1d: groups is 2, expected a divisor of in_channels 2 and out_channels 3");
}

TEST(ConvTranspose2d, ForwardAppliesAllOptions) {
  const td::ConvTranspose2dOptions options{
      .stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2, .dilation = {1, 2}};
  nn::ConvTranspose2d layer(4, 6, {3, 2}, options);
  EXPECT_EQ(layer.weight.shape(), td::Shape({4, 3, 3, 2}));
  EXPECT_EQ(layer.bias.shape(), td::Shape({6}));
  EXPECT_EQ(layer.extra_repr(),
            "4, 6, kernel 3x2, stride 2x3, padding 1x0, output padding 1x2, dilation 1x2, groups 2");
  const td::Tensor x = td::randn({2, 4, 3, 5});
  EXPECT_EQ(layer(x).to_vector<float>(), td::conv_transpose2d(x, layer.weight, layer.bias, options).to_vector<float>());
  EXPECT_EQ(layer(x).shape(), td::Shape({2, 6, 6, 17}));
}

TEST(ConvTranspose2d, OutputSizeChoosesOutputPadding) {
  nn::ConvTranspose2d layer(2, 3, 3, {.stride = 2, .padding = 1});
  const td::Tensor x = td::randn({1, 2, 4, 5});
  EXPECT_EQ(layer(x).shape(), td::Shape({1, 3, 7, 9}));
  const td::Tensor y = layer(x, {8, 9});
  EXPECT_EQ(y.shape(), td::Shape({1, 3, 8, 9}));
  EXPECT_EQ(y.to_vector<float>(),
            td::conv_transpose2d(x, layer.weight, layer.bias, {.stride = 2, .padding = 1, .output_padding = {1, 0}})
                .to_vector<float>());
  EXPECT_EQ(
      error_text<td::ValueError>([&] {
        layer(x, {9, 9});
      }),
      "ConvTranspose2d: output_size has height 9, expected 7 to 8 for an input of height 4\n  in ConvTranspose2d");
  EXPECT_EQ(error_text<td::ValueError>([&] {
              layer(x, {7, 8});
            }),
            "ConvTranspose2d: output_size has width 8, expected 9 to 10 for an input of width 5\n  in ConvTranspose2d");
}

TEST(ConvTranspose1d, OutputSizeChoosesOutputPadding) {
  nn::ConvTranspose1d layer(4, 6, 3, {.stride = 3, .groups = 2}, {.bias = false});
  EXPECT_EQ(layer.weight.shape(), td::Shape({4, 3, 3}));
  EXPECT_EQ(layer.extra_repr(), "4, 6, kernel 3, stride 3, padding 0, groups 2, no bias");
  EXPECT_EQ(layer(td::randn({4, 2})).shape(), td::Shape({6, 6}));
  const td::Tensor x = td::randn({2, 4, 2});
  const td::Tensor y = layer(x, 8);
  EXPECT_EQ(y.shape(), td::Shape({2, 6, 8}));
  EXPECT_EQ(
      y.to_vector<float>(),
      td::conv_transpose1d(x, layer.weight, {}, {.stride = 3, .output_padding = 2, .groups = 2}).to_vector<float>());
  EXPECT_EQ(
      error_text<td::ValueError>([&] { layer(x, 9); }),
      "ConvTranspose1d: output_size has length 9, expected 6 to 8 for an input of length 2\n  in ConvTranspose1d");
}

TEST(ConvTranspose1d, InitialValuesAreUniformAsInPyTorch) {
  td::manual_seed(7);
  const nn::ConvTranspose1d layer(50, 100, 4, {.groups = 2});
  const double limit = 1 / std::sqrt(50.0 * 4);  // PyTorch's fan-in: the second size of the weight times the taps
  for (const td::Tensor& parameter : layer.parameters()) {
    const auto values = parameter.to_vector<double>();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -limit * 1.000001);
    EXPECT_LE(*high, limit * 1.000001);
    EXPECT_LT(*low, -0.9 * limit);
    EXPECT_GT(*high, 0.9 * limit);
  }
}

TEST(Conv2d, PaddingModeIsPrinted) {
  const nn::Conv2d layer(3, 2, 3, {.padding = 1}, {.padding_mode = td::PadMode::kReflect});
  EXPECT_EQ(layer.extra_repr(), "3, 2, kernel 3x3, stride 1, padding 1, reflect");
}

TEST(ConvTranspose2d, PaddingModeIsRejected) {
  EXPECT_EQ(
      error_text<td::ValueError>([] { nn::ConvTranspose2d(3, 2, 3, {}, {.padding_mode = td::PadMode::kCircular}); }),
      "ConvTranspose2d: padding_mode must be PadMode::kConstant (zeros)");
}

TEST(Conv2d, ErrorsNameTheLayer) {
  nn::Module root;
  auto& layer = root.add<nn::Conv2d>("conv1", 3, 2, 3);
  const std::string text = error_text<td::ShapeError>([&] { layer(td::ones({2, 4, 5, 5})); });
  EXPECT_TRUE(text.ends_with("\n  in Conv2d 'conv1'")) << text;
}

}  // namespace
