#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include <tandem/examples/models/gpt.h>
#include <tandem/examples/models/lenet.h>
#include <tandem/examples/models/resnet.h>
#include <tandem/tandem.h>

namespace {

using namespace tandem;

std::map<std::string, Shape> shapes(const nn::Module& model) {
  std::map<std::string, Shape> result;
  for (const auto& [name, tensor] : model.state_dict().tensors()) result.emplace(name, tensor.shape());
  return result;
}

int64_t count(const nn::Module& model) {
  int64_t sum = 0;
  for (const Tensor& parameter : model.parameters()) sum += parameter.num_elements();
  return sum;
}

TEST(LeNet, ParametersAndOutputHaveExpectedShapes) {
  models::LeNet model;
  const std::map<std::string, Shape> expected = {
      {"conv1.weight", {32, 1, 5, 5}}, {"conv1.bias", {32}}, {"conv2.weight", {64, 32, 5, 5}}, {"conv2.bias", {64}},
      {"fc1.weight", {128, 1024}},     {"fc1.bias", {128}},  {"fc2.weight", {10, 128}},        {"fc2.bias", {10}}};
  EXPECT_EQ(shapes(model), expected);
  EXPECT_EQ(model(rand({3, 1, 28, 28})).shape(), Shape({3, 10}));
}

TEST(ResNet18, ParametersAndOutputHaveExpectedShapes) {
  models::ResNet18 model(8, 7);
  EXPECT_EQ(model(randn({2, 3, 32, 32})).shape(), Shape({2, 7}));
  const auto found = shapes(model);
  // 20 convolutions without bias (stem, 8 blocks of two, three shortcuts), 20 batch norms, one linear layer.
  EXPECT_EQ(found.size(), 20u + 20u * 5u + 2u);
  EXPECT_EQ(found.at("conv1.weight"), Shape({8, 3, 3, 3}));
  EXPECT_EQ(found.at("layer1.0.bn2.running_var"), Shape({8}));
  EXPECT_EQ(found.at("layer2.0.conv1.weight"), Shape({16, 8, 3, 3}));
  EXPECT_EQ(found.at("layer2.0.downsample.0.weight"), Shape({16, 8, 1, 1}));
  EXPECT_EQ(found.at("layer2.0.downsample.1.num_batches_tracked"), Shape());
  EXPECT_EQ(found.at("layer4.1.conv2.weight"), Shape({64, 64, 3, 3}));
  EXPECT_EQ(found.at("fc.weight"), Shape({7, 64}));
  EXPECT_EQ(found.count("layer1.0.downsample.0.weight"), 0u);
  EXPECT_EQ(count(models::ResNet18()), 11173962);  // the number of torchvision's resnet18 with this stem and 10 classes
}

TEST(ResNet50, ParametersAndOutputHaveExpectedShapes) {
  models::ResNet50 model;
  EXPECT_EQ(model(randn({1, 3, 64, 64})).shape(), Shape({1, 1000}));
  const auto found = shapes(model);
  EXPECT_EQ(found.size(), 53u + 53u * 5u + 2u);  // 53 convolutions without bias, 53 batch norms, one linear layer
  EXPECT_EQ(found.at("layer1.0.downsample.0.weight"), Shape({256, 64, 1, 1}));
  EXPECT_EQ(found.at("layer4.2.conv3.weight"), Shape({2048, 512, 1, 1}));
  EXPECT_EQ(count(model), 25557032);  // the number of torchvision's resnet50
}

TEST(Gpt, ParametersAndOutputHaveExpectedShapes) {
  manual_seed(3);
  models::Gpt model({.vocabulary = 11, .context = 6, .layers = 2, .heads = 3, .width = 24});
  const Tensor tokens = randint(0, 11, {4, 5});
  EXPECT_EQ(model(tokens).shape(), Shape({4, 5, 11}));
  const auto found = shapes(model);
  EXPECT_EQ(found.size(), 2u + 2u * 12u + 2u + 1u);
  EXPECT_EQ(found.at("wte.weight"), Shape({11, 24}));
  EXPECT_EQ(found.at("wpe.weight"), Shape({6, 24}));
  EXPECT_EQ(found.at("h.0.attn.c_attn.weight"), Shape({72, 24}));
  EXPECT_EQ(found.at("h.1.mlp.c_proj.weight"), Shape({24, 96}));
  EXPECT_EQ(found.at("lm_head.weight"), Shape({11, 24}));
  const auto state = model.state_dict();
  EXPECT_EQ(state.get<Tensor>("lm_head.weight").data_ptr(), state.get<Tensor>("wte.weight").data_ptr());
  EXPECT_EQ(count(model), (11 + 6) * 24 + 2 * (12 * 24 * 24 + 13 * 24) + 2 * 24);
}

TEST(Gpt, LaterTokensDoNotChangeEarlierOutputs) {
  const NoGradGuard no_grad;
  models::Gpt model({.vocabulary = 7, .context = 9, .layers = 2, .heads = 2, .width = 8});
  const Tensor tokens = randint(0, 7, {1, 9});
  const Tensor changed = tokens.clone();
  changed[0][6].fill_((tokens[0][6].item<int64_t>() + 1) % 7);
  const auto before = model(tokens)[0].to_vector<float>();
  const auto after = model(changed)[0].to_vector<float>();
  for (size_t i = 0; i < 6 * 7; ++i) EXPECT_EQ(before[i], after[i]) << i;
  bool differs = false;
  for (size_t i = 6 * 7; i < 9 * 7; ++i) differs |= before[i] != after[i];
  EXPECT_TRUE(differs);
}

TEST(Gpt, InitialWeightsFollowGpt2) {
  manual_seed(1);
  constexpr int64_t kLayers = 8;
  models::Gpt model({.vocabulary = 50, .context = 40, .layers = kLayers, .heads = 2, .width = 64});
  for (const auto& [name, parameter] : model.named_parameters()) {
    const double n = static_cast<double>(parameter.num_elements());
    const double mean = parameter.sum().item() / n;
    const double deviation = std::sqrt((parameter * parameter).sum().item() / n - mean * mean);
    double expected = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;
    if (name.ends_with(".bias") || name.find("ln_") != std::string::npos) expected = 0;
    EXPECT_NEAR(deviation, expected, 0.06 * expected + 1e-9) << name;
    EXPECT_NEAR(mean, name.find("ln_") != std::string::npos && name.ends_with(".weight") ? 1 : 0,
                5 * expected / std::sqrt(n))
        << name;
  }
}

TEST(Gpt, HeadsMustDivideTheWidth) {
  try {
    models::Gpt({.vocabulary = 7, .heads = 3, .width = 8});
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "Gpt: width 8 is not a multiple of heads 3");
  }
}

}  // namespace
