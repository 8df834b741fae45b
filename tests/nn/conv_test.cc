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

TEST(Conv2d, ErrorsNameTheLayer) {
  nn::Module root;
  auto& layer = root.add<nn::Conv2d>("conv1", 3, 2, 3);
  const std::string text = error_text<td::ShapeError>([&] { layer(td::ones({2, 4, 5, 5})); });
  EXPECT_TRUE(text.ends_with("\n  in Conv2d 'conv1'")) << text;
}

}  // namespace
