#include <tandem/models/ddpm_unet.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/ops.h>

namespace {

using namespace tandem;
using models::DdpmUNet;
using tandem::testing::error_text;

std::map<std::string, Shape> shapes(const nn::Module& model) {
  std::map<std::string, Shape> result;
  for (const auto& [name, tensor] : model.state_dict().tensors()) result.emplace(name, tensor.shape());
  return result;
}

/// Draws all parameters, including those whose initial values are zeros.
void randomize(nn::Module& model) {
  for (const Tensor& parameter : model.parameters()) nn::init::normal_(parameter, 0, 0.2);
}

TEST(DdpmUNet, ParametersHaveExpectedShapes) {
  const DdpmUNet model({.channels = 3, .width = 8, .multipliers = {1, 2}, .groups = 4, .patch = 2});
  const auto found = shapes(model);
  EXPECT_EQ(found.at("time1.weight"), Shape({32, 8}));
  EXPECT_EQ(found.at("time2.weight"), Shape({32, 32}));
  EXPECT_EQ(found.at("in.weight"), Shape({8, 12, 3, 3}));
  EXPECT_EQ(found.at("down0.conv1.weight"), Shape({8, 8, 3, 3}));
  EXPECT_EQ(found.count("down0.shortcut.weight"), 0u);
  EXPECT_EQ(found.at("halve1.weight"), Shape({8, 8, 3, 3}));
  EXPECT_EQ(found.at("down1.shortcut.weight"), Shape({16, 8, 1, 1}));
  EXPECT_EQ(found.at("middle1.time.weight"), Shape({16, 32}));
  EXPECT_EQ(found.at("attention.qkv.weight"), Shape({48, 16}));
  EXPECT_EQ(found.at("up1.conv1.weight"), Shape({16, 32, 3, 3}));
  EXPECT_EQ(found.at("twice0.weight"), Shape({8, 16, 3, 3}));
  EXPECT_EQ(found.at("up0.conv1.weight"), Shape({8, 16, 3, 3}));
  EXPECT_EQ(found.at("out.weight"), Shape({12, 8, 3, 3}));
}

TEST(DdpmUNet, ResultHasTheShapeOfTheImagesAndBeginsWithZeros) {
  manual_seed(1);
  for (const int64_t patch : {1, 2}) {
    DdpmUNet model({.channels = 2, .width = 8, .multipliers = {1, 1, 2}, .groups = 8, .patch = patch});
    const Tensor images = randn({2, 2, 8 * patch, 16 * patch});
    const Tensor zero = model(images, tensor({0, 999}));
    EXPECT_EQ(zero.shape(), images.shape());
    EXPECT_EQ(zero.abs().max().item(), 0);
    randomize(model);
    EXPECT_GT(model(images, tensor({0, 999})).abs().max().item(), 0);
  }
}

TEST(DdpmUNet, ImagesOfABatchAreIndependentAndDependOnTheirTime) {
  manual_seed(2);
  const NoGradGuard no_grad;
  DdpmUNet model({.channels = 1, .width = 8, .multipliers = {1, 2}, .groups = 8});
  randomize(model);
  const Tensor image = randn({1, 1, 4, 4});
  const Tensor results = model(cat({image, image, image}), tensor({3, 500, 3}));
  EXPECT_LT((results[0] - results[2]).abs().max().item(), 1e-5);
  EXPECT_GT((results[0] - results[1]).abs().max().item(), 1e-2);
  EXPECT_LT((model(image, tensor({500}))[0] - results[1]).abs().max().item(), 1e-4);
}

TEST(DdpmUNet, EveryParameterGetsAGradient) {
  manual_seed(3);
  DdpmUNet model({.channels = 1, .width = 8, .multipliers = {1, 2}, .groups = 8});
  randomize(model);
  model(randn({2, 1, 4, 4}), tensor({3, 500})).square().sum().backward();
  for (const auto& [name, parameter] : model.named_parameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_GT(parameter.grad().abs().max().item(), 0) << name;
  }
}

TEST(DdpmUNet, SizesOutOfRangeThrow) {
  const auto error = [](models::DdpmUNetOptions options) {
    return error_text<ValueError>([&] { DdpmUNet model(options); });
  };
  const std::string expected = "; expected sizes of at least 1, and a width that is even and a multiple of groups";
  EXPECT_EQ(error({.width = 12, .multipliers = {1, 2}, .groups = 8}),
            "DdpmUNet: channels 3, width 12, multipliers [1, 2], groups 8, patch 1" + expected);
  EXPECT_EQ(error({.width = 3, .multipliers = {1}, .groups = 3}),
            "DdpmUNet: channels 3, width 3, multipliers [1], groups 3, patch 1" + expected);
  EXPECT_EQ(error({.multipliers = {}}),
            "DdpmUNet: channels 3, width 128, multipliers [], groups 32, patch 1" + expected);
  EXPECT_EQ(error({.multipliers = {1, 0}}),
            "DdpmUNet: channels 3, width 128, multipliers [1, 0], groups 32, patch 1" + expected);
}

}  // namespace
