#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

void set(const td::Tensor& tensor, const std::vector<float>& values) {
  td::primitives::copy(td::from_vector<float>(values, tensor.shape()), tensor);
}

/// Channel 0 has the values 1, 2, 3, 4 (mean 2.5, variance 1.25, unbiased 5 / 3), channel 1 has 10, 2, 2, 2 (mean 4,
/// variance 12, unbiased 16).
td::Tensor images() { return td::from_vector<float>({1, 2, 10, 2, 3, 4, 2, 2}, {2, 2, 1, 2}); }

// After each batch in turn; the batches in evaluation mode are not counted.
TEST(BatchNorm1d, MomentumCanChange) {
  nn::BatchNorm1d layer(1, {.momentum = std::nullopt});
  EXPECT_EQ(layer.momentum(), std::nullopt);
  for (const float value : {1.0f, 2.0f, 6.0f}) layer(td::from_vector<float>({value - 1, value + 1}, {2, 1}));
  layer.eval();
  layer(td::zeros({2, 1}));
  EXPECT_NEAR(layer.running_mean.item(), 3, 1e-6);
  EXPECT_NEAR(layer.running_var.item(), 2, 1e-6);
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 3);
  layer.set_momentum(0.5);
  layer.train();
  layer(td::from_vector<float>({4, 6}, {2, 1}));
  EXPECT_NEAR(layer.running_mean.item(), 4, 1e-6);
}

TEST(BatchNorm2d, FusedReluMatchesSeparateRelu) {
  nn::BatchNorm2d plain(2);
  nn::BatchNorm2d fused(2, {.activation = nn::Activation::kRelu});
  EXPECT_EQ(fused(images()).to_vector<float>(), plain(images()).relu().to_vector<float>());
  EXPECT_EQ(fused.running_var.to_vector<float>(), plain.running_var.to_vector<float>());
  EXPECT_EQ(fused.num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNorm2d, FusedRelu6MatchesSeparateRelu6) {
  nn::BatchNorm2d plain(2), fused(2, {.activation = nn::Activation::kRelu6});
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

TEST(InstanceNorm, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::InstanceNorm1d(0), "InstanceNorm1d: num_features is 0, expected at least 1");
  nn::InstanceNorm2d layer(2);
  EXPECT_ERROR(
      td::ShapeError, layer(td::ones({2, 2})),
      "InstanceNorm2d: input is float32 [2, 2] on cpu, expected [N, C, H, W] or [C, H, W]\n  in InstanceNorm2d");
}

TEST(GroupNorm, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::GroupNorm(0, 4),
               "GroupNorm: num_groups is 0 and num_channels 4, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::GroupNorm(3, 4),
               "GroupNorm: num_channels is 4, expected a multiple of num_groups, 3");
  EXPECT_ERROR(td::ValueError, nn::GroupNorm(2, 4, {.eps = 0}), "GroupNorm: eps is 0, expected a finite number > 0");
}

TEST(BatchNorm2d, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::BatchNorm2d(0), "BatchNorm2d: num_features is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, nn::BatchNorm2d(1, {.eps = 0}), "BatchNorm2d: eps is 0, expected a finite number > 0");
  EXPECT_ERROR(td::ValueError, nn::BatchNorm2d(1, {.momentum = 1.5, .affine = false}),
               "BatchNorm2d: momentum is 1.5, expected 0 <= momentum <= 1");
  nn::BatchNorm1d rows(2);
  EXPECT_ERROR(td::ShapeError, rows(images()),
               "BatchNorm1d: input is float32 [2, 2, 1, 2] on cpu, expected [N, C] or [N, C, L]\n  in BatchNorm1d");
  nn::BatchNorm2d layer(3);
  EXPECT_ERROR(td::ShapeError, layer(td::ones({2, 3})),
               "BatchNorm2d: input is float32 [2, 3] on cpu, expected [N, C, H, W]\n  in BatchNorm2d");
}

TEST(RMSNorm, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::RMSNorm(0),
               "RMSNorm: normalized_shape is [0], expected at least one dimension and sizes of at least 1");
}

TEST(LayerNorm, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::LayerNorm(td::Shape{}),
               "LayerNorm: normalized_shape is [], expected at least one dimension and sizes of at least 1");
  EXPECT_ERROR(td::ValueError, nn::LayerNorm(0, {.affine = false}),
               "LayerNorm: normalized_shape is [0], expected at least one dimension and sizes of at least 1");
  EXPECT_ERROR(td::ValueError, nn::LayerNorm(3, {.eps = -1}), "LayerNorm: eps is -1, expected a finite number > 0");
  nn::Module root;
  auto& layer = root.add<nn::LayerNorm>("ln_1", 3);
  const std::string text = error_text<td::ShapeError>([&] { layer(td::ones({2, 4})); });
  EXPECT_TRUE(text.ends_with("\n  in LayerNorm 'ln_1'")) << text;
}

}  // namespace
