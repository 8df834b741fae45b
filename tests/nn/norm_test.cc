#include <tandem/nn/norm.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
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

std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& [path, tensor] : module.state_dict().tensors()) result.push_back(path);
  return result;
}

void expect_near(const td::Tensor& tensor, const std::vector<double>& expected) {
  const auto values = tensor.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 2e-6) << i;
}

TEST(BatchNorm2d, StateDictKeysMatchPyTorch) {
  EXPECT_EQ(keys(nn::BatchNorm2d(3)),
            (std::vector<std::string>{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_EQ(keys(nn::BatchNorm2d(3, {.affine = false})),
            (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_EQ(nn::BatchNorm2d(3).num_batches_tracked.dtype(), td::kInt64);
  EXPECT_EQ(nn::BatchNorm2d(3).num_batches_tracked.dim(), 0);
}

/// Channel 0 has the values 1, 2, 3, 4 (mean 2.5, variance 1.25, unbiased 5 / 3), channel 1 has 10, 2, 2, 2 (mean 4,
/// variance 12, unbiased 16).
td::Tensor images() { return td::from_vector<float>({1, 2, 10, 2, 3, 4, 2, 2}, {2, 2, 1, 2}); }

TEST(BatchNorm2d, BatchStatisticsNormalizeAndUpdateRunningStatistics) {
  nn::BatchNorm2d layer(2, {.eps = 0.25, .momentum = 0.5});
  set(layer.weight, {2, -1});
  set(layer.bias, {0.5, 1});
  const double a = 2 / std::sqrt(1.5);
  const double b = -1 / std::sqrt(12.25);
  expect_near(layer(images()),
              {0.5 - 1.5 * a, 0.5 - 0.5 * a, 1 + 6 * b, 1 - 2 * b, 0.5 + 0.5 * a, 0.5 + 1.5 * a, 1 - 2 * b, 1 - 2 * b});
  expect_near(layer.running_mean, {1.25, 2});
  expect_near(layer.running_var, {0.5 + 0.5 * 5 / 3, 0.5 + 8});
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 1);
  layer(images());
  expect_near(layer.running_mean, {1.875, 3});
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 2);

  layer.eval();
  const double c = 2 / std::sqrt(layer.running_var.to_vector<double>()[0] + 0.25);
  const auto y = layer(images()).to_vector<double>();
  EXPECT_NEAR(y[0], 0.5 + (1 - 1.875) * c, 1e-6);
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 2);
  expect_near(layer.running_mean, {1.875, 3});
}

TEST(BatchNorm2d, FusedReluMatchesSeparateRelu) {
  nn::BatchNorm2d plain(2);
  nn::BatchNorm2d fused(2, {.relu = true});
  EXPECT_EQ(fused(images()).to_vector<float>(), plain(images()).relu().to_vector<float>());
  EXPECT_EQ(fused.running_var.to_vector<float>(), plain.running_var.to_vector<float>());
  EXPECT_EQ(fused.num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNorm2d, FusedRelu6MatchesSeparateRelu6) {
  nn::BatchNorm2d plain(2), fused(2, {.relu6 = true});
  for (nn::BatchNorm2d* layer : {&plain, &fused}) set(layer->weight, {8, 1});
  EXPECT_EQ(fused(images()).to_vector<float>(), td::relu6(plain(images())).to_vector<float>());
  fused.eval();
  plain.eval();
  EXPECT_EQ(fused(images()).to_vector<float>(), td::relu6(plain(images())).to_vector<float>());
}

TEST(BatchNorm2d, AddReluMatchesSeparateOperations) {
  nn::Module root;
  auto& fused = root.add<nn::BatchNorm2d>("bn2", 2);
  nn::BatchNorm2d plain(2);
  const td::Tensor residual = td::from_vector<float>({1, -1, 0, 2, -3, 0.5, -0.25, 0}, {2, 2, 1, 2});
  const auto y = fused.add_relu(images(), residual).to_vector<double>();
  const auto expected = td::add(plain(images()), residual).relu().to_vector<double>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-6);
  EXPECT_EQ(fused.running_mean.to_vector<float>(), plain.running_mean.to_vector<float>());
  EXPECT_EQ(fused.num_batches_tracked.item<int64_t>(), 1);
  const std::string text = error_text<td::ShapeError>([&] { fused.add_relu(images(), td::ones({3})); });
  EXPECT_TRUE(text.ends_with("\n  in BatchNorm2d 'bn2'")) << text;
  EXPECT_EQ(fused.num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNorm1d, NormalizesRowsAndSequences) {
  nn::BatchNorm1d rows(2);
  nn::BatchNorm1d sequences(2);
  nn::BatchNorm2d images_norm(2);
  const auto expected = images_norm(images()).to_vector<float>();
  EXPECT_EQ(sequences(images().squeeze(2)).to_vector<float>(), expected);
  // Rows are [N L, C].
  EXPECT_EQ(rows(images().squeeze(2).transpose(1, 2).reshape({4, 2})).shape(), td::Shape({4, 2}));
  EXPECT_EQ(rows.running_mean.to_vector<float>(), images_norm.running_mean.to_vector<float>());
  EXPECT_EQ(rows.running_var.to_vector<float>(), images_norm.running_var.to_vector<float>());
  EXPECT_EQ(error_text<td::ShapeError>([&] { rows(images()); }),
            "BatchNorm1d: input is float32 [2, 2, 1, 2] on cpu, expected [N, C] or [N, C, L]\n  in BatchNorm1d");
}

TEST(BatchNorm1d, WithoutMomentumRunningStatisticsAreMeans) {
  nn::BatchNorm1d layer(1, {.momentum = std::nullopt});
  EXPECT_EQ(layer.momentum(), std::nullopt);
  for (const float value : {1.0f, 2.0f, 6.0f}) layer(td::from_vector<float>({value - 1, value + 1}, {2, 1}));
  expect_near(layer.running_mean, {3});
  expect_near(layer.running_var, {2});
  layer.eval();
  layer(td::zeros({1, 1}));
  expect_near(layer.running_mean, {3});
  layer.set_momentum(0.5);
  layer.train();
  layer(td::from_vector<float>({4, 6}, {2, 1}));
  expect_near(layer.running_mean, {4});
}

TEST(BatchNorm1d, WithoutRunningStatisticsEvaluationUsesTheBatch) {
  nn::BatchNorm1d layer(2, {.track_running_stats = false});
  EXPECT_EQ(keys(layer), (std::vector<std::string>{"weight", "bias"}));
  const td::Tensor x = images().squeeze(2);
  const auto trained = layer(x).to_vector<float>();
  layer.eval();
  EXPECT_EQ(layer(x).to_vector<float>(), trained);
  EXPECT_EQ(trained, nn::BatchNorm1d(2)(x).to_vector<float>());
}

TEST(InstanceNorm, NormalizesEachChannelOfEachSample) {
  const double a = 0.5 / std::sqrt(0.25 + 1e-5), b = 4 / std::sqrt(16 + 1e-5);
  const std::vector<double> expected = {-a, a, b, -b, -a, a, 0, 0};
  nn::InstanceNorm2d layer(2);
  EXPECT_TRUE(keys(layer).empty());
  expect_near(layer(images()), expected);
  nn::InstanceNorm1d sequences(2);
  expect_near(sequences(images().squeeze(2)), expected);
  const td::Tensor sample = sequences(images().squeeze(2)[0]);
  EXPECT_EQ(sample.shape(), td::Shape({2, 2}));
  expect_near(sample, {-a, a, b, -b});
  EXPECT_EQ(layer(images()[1]).shape(), td::Shape({2, 1, 2}));
}

TEST(InstanceNorm, EvaluationUsesRunningStatistics) {
  nn::InstanceNorm1d layer(2, {.eps = 0.25, .momentum = 0.5, .affine = true, .track_running_stats = true});
  EXPECT_EQ(keys(layer),
            (std::vector<std::string>{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
  layer(images().squeeze(2));
  // Means 1.5 and 3.5, 6 and 2; unbiased variances 0.5 and 0.5, 32 and 0.
  expect_near(layer.running_mean, {1.25, 2});
  expect_near(layer.running_var, {0.75, 8.5});
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 0);
  layer.eval();
  set(layer.weight, {2, 1});
  expect_near(layer(td::from_vector<float>({1, 2}, {2, 1})), {-0.5, 0});
}

TEST(InstanceNorm, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::InstanceNorm1d(0); }),
            "InstanceNorm1d: num_features is 0, expected at least 1");
  nn::InstanceNorm2d layer(2);
  EXPECT_EQ(error_text<td::ShapeError>([&] {
              layer(td::ones({2, 2}));
            }),
            "InstanceNorm2d: input is float32 [2, 2] on cpu, expected [N, C, H, W] or [C, H, W]\n  in InstanceNorm2d");
}

TEST(GroupNorm, NormalizesGroupsOfChannels) {
  nn::GroupNorm layer(1, 2, {.eps = 0.25});
  EXPECT_EQ(keys(layer), (std::vector<std::string>{"weight", "bias"}));
  set(layer.weight, {2, -1});
  set(layer.bias, {0.5, 1});
  // 1, 2, 10, 2 has mean 3.75 and variance 13.1875; 3, 4, 2, 2 has mean 2.75 and variance 0.6875.
  const double a = 1 / std::sqrt(13.4375), b = 1 / std::sqrt(0.9375);
  expect_near(layer(images()), {0.5 - 5.5 * a, 0.5 - 3.5 * a, 1 - 6.25 * a, 1 + 1.75 * a, 0.5 + 0.5 * b, 0.5 + 2.5 * b,
                                1 + 0.75 * b, 1 + 0.75 * b});
  EXPECT_TRUE(keys(nn::GroupNorm(2, 4, {.affine = false})).empty());
}

TEST(GroupNorm, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::GroupNorm(0, 4); }),
            "GroupNorm: num_groups is 0 and num_channels 4, expected at least 1 each");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::GroupNorm(3, 4); }),
            "GroupNorm: num_channels is 4, expected a multiple of num_groups, 3");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::GroupNorm(2, 4, {.eps = 0}); }),
            "GroupNorm: eps is 0, expected a finite number > 0");
}

TEST(RMSNorm, DividesByTheRootOfTheMeanSquare) {
  nn::RMSNorm layer(2, {.eps = 0.5});
  EXPECT_EQ(keys(layer), (std::vector<std::string>{"weight"}));
  set(layer.weight, {2, -1});
  const double a = 1 / std::sqrt(13.0);
  expect_near(layer(td::from_vector<float>({3, 4, 0, 5}, {2, 2})), {6 * a, -4 * a, 0, -5 * a});
  nn::RMSNorm bare(td::Shape{2, 2}, {.elementwise_affine = false});
  EXPECT_TRUE(keys(bare).empty());
  const double b = 1 / std::sqrt(12.5);
  expect_near(bare(td::from_vector<float>({3, 4, 0, 5}, {2, 2})), {3 * b, 4 * b, 0, 5 * b});
  EXPECT_EQ(error_text<td::ValueError>([] { nn::RMSNorm(0); }),
            "RMSNorm: normalized_shape is [0], expected at least one dimension and sizes of at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::RMSNorm(2, {.eps = 0}); }),
            "RMSNorm: eps is 0, expected a finite number > 0");
}

TEST(BatchNorm2d, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::BatchNorm2d(0); }),
            "BatchNorm2d: num_features is 0, expected at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::BatchNorm2d(1, {.eps = 0}); }),
            "BatchNorm2d: eps is 0, expected a finite number > 0");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::BatchNorm2d(1, {.momentum = 1.5, .affine = false}); }),
            "BatchNorm2d: momentum is 1.5, expected 0 <= momentum <= 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::BatchNorm2d(1, {.relu = true, .relu6 = true}); }),
            "BatchNorm2d: relu and relu6 are both set, expected at most one of them");
  nn::BatchNorm2d layer(3);
  EXPECT_EQ(error_text<td::ShapeError>([&] {
              layer(td::ones({2, 3}));
            }),
            "BatchNorm2d: input is float32 [2, 3] on cpu, expected [N, C, H, W]\n  in BatchNorm2d");
}

TEST(LayerNorm, EachRowIsNormalized) {
  nn::LayerNorm layer(4, {.eps = 0.25});
  EXPECT_EQ(keys(layer), (std::vector<std::string>{"weight", "bias"}));
  set(layer.weight, {1, 2, 3, -1});
  set(layer.bias, {0, 0.5, 0, 1});
  const double a = 1 / std::sqrt(1.5);
  expect_near(layer(td::from_vector<float>({1, 2, 3, 4, 14, 12, 16, 18}, {2, 1, 4})),
              {-1.5 * a, 0.5 - a, 1.5 * a, 1 - 1.5 * a, -1 / std::sqrt(5.25), 0.5 - 6 / std::sqrt(5.25),
               3 / std::sqrt(5.25), 1 - 3 / std::sqrt(5.25)});
}

TEST(LayerNorm, SeveralDimensionsAreNormalizedTogether) {
  nn::LayerNorm layer(td::Shape{2, 2});
  EXPECT_EQ(layer.weight.shape(), td::Shape({2, 2}));
  const double a = 1 / std::sqrt(1.25 + 1e-5);
  expect_near(layer(td::from_vector<float>({1, 2, 3, 4}, {1, 2, 2})), {-1.5 * a, -0.5 * a, 0.5 * a, 1.5 * a});
}

TEST(LayerNorm, WeightAndBiasCanBeDisabled) {
  EXPECT_EQ(keys(nn::LayerNorm(3, {.bias = false})), (std::vector<std::string>{"weight"}));
  nn::LayerNorm bare(4, {.affine = false});
  EXPECT_TRUE(keys(bare).empty());
  const double a = 1 / std::sqrt(1.25 + 1e-5);
  expect_near(bare(td::from_vector<float>({1, 2, 3, 4}, {1, 4})), {-1.5 * a, -0.5 * a, 0.5 * a, 1.5 * a});
}

TEST(LayerNorm, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::LayerNorm(td::Shape{}); }),
            "LayerNorm: normalized_shape is [], expected at least one dimension and sizes of at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::LayerNorm(0, {.affine = false}); }),
            "LayerNorm: normalized_shape is [0], expected at least one dimension and sizes of at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::LayerNorm(3, {.eps = -1}); }),
            "LayerNorm: eps is -1, expected a finite number > 0");
  nn::Module root;
  auto& layer = root.add<nn::LayerNorm>("ln_1", 3);
  const std::string text = error_text<td::ShapeError>([&] { layer(td::ones({2, 4})); });
  EXPECT_TRUE(text.ends_with("\n  in LayerNorm 'ln_1'")) << text;
}

}  // namespace
