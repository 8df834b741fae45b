#include <tandem/nn/layers.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/activation.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

void set(const td::Tensor& tensor, const std::vector<float>& values) {
  td::primitives::copy(td::from_vector<float>(values, tensor.shape()), tensor);
}

TEST(Linear, ForwardMultipliesAndAddsBias) {
  nn::Linear layer(3, 2);
  set(layer.weight, {1, 2, 3, -1, 0, 4});
  set(layer.bias, {0.5, -2});
  const td::Tensor x = td::from_vector<float>({1, 10, 100, 2, -1, 0.5}, {2, 3});
  EXPECT_EQ(layer(x).to_vector<float>(), (std::vector<float>{321.5, 397, 2, -2}));

  nn::Linear bare(3, 2, {.bias = false});
  set(bare.weight, {1, 2, 3, -1, 0, 4});
  EXPECT_FALSE(bare.bias.defined());
  EXPECT_EQ(bare.named_parameters().size(), 1u);
  EXPECT_EQ(bare(x).to_vector<float>(), (std::vector<float>{321, 399, 1.5, 0}));
}

TEST(Linear, GradientsReachWeightAndBias) {
  nn::Linear layer(2, 3);
  const td::Tensor x = td::from_vector<float>({1, 2, 3, 4}, {2, 2});
  layer(x).backward(td::from_vector<float>({1, -1, 0.5, 2, 0, -3}, {2, 3}));
  // grad_output^T x, and the sum of the rows of grad_output.
  EXPECT_EQ(layer.weight.grad().to_vector<float>(), (std::vector<float>{7, 10, -1, -2, -8.5, -11}));
  EXPECT_EQ(layer.bias.grad().to_vector<float>(), (std::vector<float>{3, -1, -2.5}));
}

TEST(Linear, InitialValuesAreUniformAsInPyTorch) {
  td::manual_seed(7);
  const nn::Linear layer(100, 200);
  for (const td::Tensor& parameter : layer.parameters()) {
    const auto values = parameter.to_vector<double>();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -0.1 - 1e-7);
    EXPECT_LE(*high, 0.1 + 1e-7);
    EXPECT_LT(*low, -0.095);
    EXPECT_GT(*high, 0.095);
    double sum = 0;
    for (const double value : values) sum += value;
    EXPECT_NEAR(sum / static_cast<double>(values.size()), 0,
                5 * 0.2 / std::sqrt(12.0 * static_cast<double>(values.size())));
  }
  td::manual_seed(7);
  const nn::Linear again(100, 200);
  EXPECT_EQ(layer.weight.to_vector<float>(), again.weight.to_vector<float>());
  EXPECT_EQ(layer.bias.to_vector<float>(), again.bias.to_vector<float>());
}

TEST(Linear, ErrorsNameTheLayer) {
  nn::Module root;
  auto& layer = root.add<nn::Linear>("fc1", 3, 2);
  const std::string text = error_text<td::ShapeError>([&] { layer(td::ones({2, 4})); });
  EXPECT_TRUE(text.ends_with("\n  in Linear 'fc1'")) << text;
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Linear(0, 2); }),
            "Linear: in_features is 0 and out_features 2, expected at least 1 each");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Linear(2, -1); }),
            "Linear: in_features is 2 and out_features -1, expected at least 1 each");
}

TEST(Linear, FusedReluMatchesSeparateRelu) {
  td::manual_seed(5);
  nn::Linear fused(7, 33, {.relu = true});
  nn::Linear plain(7, 33);
  plain.load_state_dict(fused.state_dict());
  const td::Tensor x = td::randn({31, 7});
  const td::Tensor cotangent = td::randn({31, 33});
  const td::Tensor y = fused(x);
  const td::Tensor expected = plain(x).relu();
  EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());
  y.backward(cotangent);
  expected.backward(cotangent);
  EXPECT_EQ(fused.weight.grad().to_vector<float>(), plain.weight.grad().to_vector<float>());
  EXPECT_EQ(fused.bias.grad().to_vector<float>(), plain.bias.grad().to_vector<float>());
}

TEST(Linear, FusedGeluMatchesSeparateGelu) {
  for (const auto form : {td::GeluApproximation::kNone, td::GeluApproximation::kTanh}) {
    nn::Linear fused(7, 33, {.gelu = form});
    nn::Linear plain(7, 33);
    plain.load_state_dict(fused.state_dict());
    const td::Tensor x = td::randn({5, 7});
    EXPECT_EQ(fused(x).to_vector<float>(), td::gelu(plain(x), form).to_vector<float>());
    EXPECT_EQ(fused.extra_repr(), form == td::GeluApproximation::kTanh ? "7, 33, gelu tanh" : "7, 33, gelu");
  }
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Linear(1, 1, {.relu = true, .gelu = td::GeluApproximation::kNone}); }),
            "Linear: relu and gelu are both requested, expected at most one");
}

TEST(Linear, TiedWeightSumsBothGradients) {
  struct Net : nn::Module {
    nn::Linear& encoder = add<nn::Linear>("encoder", 3, 2, nn::LinearOptions{.bias = false});
    nn::Module& decoder = add<nn::Module>("decoder");
    td::Tensor& again = decoder.add_parameter("weight", encoder.weight);
  };
  Net net;
  set(net.encoder.weight, {1, 2, 3, -1, 0, 4});
  const td::Tensor x = td::from_vector<float>({1, 10, 100}, {1, 3});
  // x W^T W: the gradients of both uses are summed.
  net.encoder(x).matmul(net.again).backward(td::from_vector<float>({2, -1, 0.5}, {1, 3}));
  ASSERT_EQ(net.parameters().size(), 1u);
  // d W = h^T c + (c W^T)^T x with h = x W^T = [321, 399], c = [2, -1, 0.5], c W^T = [1.5, 0].
  EXPECT_EQ(net.parameters()[0].grad().to_vector<float>(),
            (std::vector<float>{642 + 1.5f, -321 + 15, 160.5 + 150, 798, -399, 199.5}));
}

TEST(Identity, ReturnsItsInput) {
  const td::Tensor x = td::ones({2});
  EXPECT_TRUE(nn::Identity()(x).is_same(x));
}

TEST(Flatten, JoinsAllButFirstDimensionByDefault) {
  const td::Tensor x = td::zeros({2, 3, 4, 5});
  EXPECT_EQ(nn::Flatten()(x).shape(), td::Shape({2, 60}));
  EXPECT_EQ(nn::Flatten(0, 2)(x).shape(), td::Shape({24, 5}));
}

TEST(Dropout, ElementsAreDroppedInTrainingOnly) {
  td::manual_seed(3);
  nn::Dropout dropout(0.25);
  const td::Tensor x = td::full({10000}, 3);
  int dropped = 0;
  for (const float value : dropout(x).to_vector<float>()) {
    EXPECT_TRUE(value == 0 || value == 4);
    dropped += value == 0;
  }
  EXPECT_NEAR(dropped, 2500, 5 * std::sqrt(10000 * 0.25 * 0.75));
  dropout.eval();
  EXPECT_EQ(dropout(x).to_vector<float>(), x.to_vector<float>());
}

TEST(Bilinear, ForwardMultipliesAndAddsBias) {
  nn::Bilinear layer(2, 3, 1);
  EXPECT_EQ(layer.weight.shape(), td::Shape({1, 2, 3}));
  set(layer.weight, {1, 2, 3, -1, 0, 4});
  set(layer.bias, {0.5});
  const td::Tensor y =
      layer(td::from_vector<float>({1, 10, 0, 2}, {2, 2}), td::from_vector<float>({1, 1, 2, 3, 5, 7}, {2, 3}));
  EXPECT_EQ(y.shape(), td::Shape({2, 1}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{9 + 70 + 0.5f, 50 + 0.5f}));
  EXPECT_EQ(nn::Bilinear(2, 3, 4, {.bias = false}).named_parameters().size(), 1u);
  EXPECT_EQ(nn::Bilinear(2, 3, 4, {.bias = false}).extra_repr(), "2, 3, 4, no bias");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Bilinear(2, 0, 4); }),
            "Bilinear: in1_features is 2, in2_features 0 and out_features 4, expected at least 1 each");
}

TEST(Bilinear, InitialValuesAreUniformAsInPyTorch) {
  td::manual_seed(7);
  const nn::Bilinear layer(100, 5, 40);
  for (const td::Tensor& parameter : layer.parameters()) {
    const auto values = parameter.to_vector<double>();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -0.1 - 1e-7);
    EXPECT_LE(*high, 0.1 + 1e-7);
    EXPECT_LT(*low, -0.08);
    EXPECT_GT(*high, 0.08);
  }
}

TEST(Unflatten, SplitsADimension) {
  EXPECT_EQ(nn::Unflatten(1, td::Shape{3, -1})(td::zeros({2, 12, 5})).shape(), td::Shape({2, 3, 4, 5}));
  EXPECT_EQ(nn::Unflatten(-1, td::Shape{2, 3}).extra_repr(), "-1, [2, 3]");
}

TEST(Distance, LayersUseTheirOptions) {
  const td::Tensor x = td::from_vector<float>({3, 4, 1, 0}, {2, 2}), y = td::from_vector<float>({4, 3, 0, 1}, {2, 2});
  const auto similarity = nn::CosineSimilarity()(x, y).to_vector<double>();
  EXPECT_NEAR(similarity[0], 0.96, 1e-6);
  EXPECT_NEAR(similarity[1], 0, 1e-6);
  EXPECT_NEAR(nn::CosineSimilarity(0)(x, y).to_vector<double>()[0], 12 / std::sqrt(10.0) / 4, 1e-6);
  nn::PairwiseDistance distance(1, 0, true);
  const td::Tensor d = distance(x, y);
  EXPECT_EQ(d.shape(), td::Shape({2, 1}));
  EXPECT_EQ(d.to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_NEAR(nn::PairwiseDistance()(x, y).to_vector<double>()[0], std::sqrt(2.0), 1e-5);
}

TEST(Dropout, WholeChannelsAreDropped) {
  td::manual_seed(3);
  nn::Dropout1d one(0.25);
  nn::Dropout2d two(0.25);
  const auto check = [](nn::Layer& layer, const td::Tensor& x, int64_t values) {
    int64_t dropped = 0;
    const auto result = layer(x).to_vector<float>();
    for (size_t i = 0; i < result.size(); ++i) {
      EXPECT_TRUE(result[i] == 0 || result[i] == 4) << i;
      EXPECT_EQ(result[i], result[i / static_cast<size_t>(values) * static_cast<size_t>(values)]) << i;
      dropped += result[i] == 0;
    }
    EXPECT_NEAR(static_cast<double>(dropped / values), 500, 5 * std::sqrt(2000 * 0.25 * 0.75));
    layer.eval();
    EXPECT_EQ(layer(x).to_vector<float>(), x.to_vector<float>());
    layer.train();
  };
  check(one, td::full({40, 50, 3}, 3), 3);
  check(one, td::full({2000, 3}, 3), 3);
  check(two, td::full({40, 50, 3, 2}, 3), 6);
}

TEST(Dropout, InvalidProbabilitiesAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Dropout(1.5); }), "Dropout: p is 1.5, expected 0 <= p <= 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Dropout(-0.1); }), "Dropout: p is -0.1, expected 0 <= p <= 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Dropout(std::nan("")); }), "Dropout: p is nan, expected 0 <= p <= 1");
}

}  // namespace
