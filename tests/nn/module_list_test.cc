#include <tandem/nn/module_list.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/nn/layers.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

/// A module whose operator() has two arguments.
struct Scaled : nn::Module {
  explicit Scaled(float factor) : scale(add_parameter("scale", td::full({1}, factor))) {}
  float operator()(float x, float y) const { return x * scale.item<float>() + y; }
  td::Tensor& scale;
};

TEST(ModuleList, NonLayerModulesAreSupported) {
  struct Net : nn::Module {
    nn::ModuleList<Scaled>& blocks = add<nn::ModuleList<Scaled>>("blocks");
  };
  Net net;
  net.blocks.append(2.0f);
  Scaled& second = net.blocks.append(std::make_unique<Scaled>(3.0f));
  EXPECT_EQ(net.blocks.size(), 2);
  EXPECT_EQ(&net.blocks[1], &second);
  float x = 1;
  for (const Scaled* block : net.blocks) x = (*block)(x, 10);
  EXPECT_EQ(x, 46);
  std::vector<std::string> paths;
  for (const auto& [path, tensor] : net.named_parameters()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"blocks.0.scale", "blocks.1.scale"}));
  EXPECT_EQ(error_text<td::IndexError>([&] { net.blocks[2]; }), "ModuleList: index is 2, expected 0 <= index < 2");
  EXPECT_EQ(error_text<td::IndexError>([&] { net.blocks[-1]; }), "ModuleList: index is -1, expected 0 <= index < 2");
}

TEST(ModuleList, DifferentLayerTypesCanBeMixed) {
  nn::ModuleList<> layers;
  layers.append<nn::Linear>(3, 2);
  layers.append<nn::Identity>();
  EXPECT_EQ(layers[0](td::ones({4, 3})).shape(), td::Shape({4, 2}));
  EXPECT_EQ(layers[1].scope_name()->text, "Identity '1'");
}

}  // namespace
