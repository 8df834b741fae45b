#include <tandem/nn/module_dict.h>

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

struct Net : nn::Module {
  Net() {
    heads.insert<nn::Linear>("depth", 2, 1);
    heads.insert("class", std::make_unique<nn::Linear>(2, 5, nn::LinearOptions{.bias = false}));
  }
  nn::ModuleDict<nn::Linear>& heads = add<nn::ModuleDict<nn::Linear>>("heads");
};

TEST(ModuleDict, KeysAreNamesInOrderOfInsertion) {
  Net net;
  std::vector<std::string> paths;
  for (const auto& [path, tensor] : net.state_dict().tensors()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"heads.depth.weight", "heads.depth.bias", "heads.class.weight"}));
  EXPECT_EQ(net.heads.keys(), (std::vector<std::string>{"depth", "class"}));
  EXPECT_EQ(net.heads.size(), 2);
}

TEST(ModuleDict, ModulesAreFoundByKey) {
  Net net;
  EXPECT_EQ(net.heads["class"](td::ones({1, 2})).shape(), td::Shape({1, 5}));
  EXPECT_TRUE(net.heads.contains("depth"));
  EXPECT_FALSE(net.heads.contains("normal"));
  EXPECT_EQ(error_text<td::ValueError>([&] { net.heads["normal"]; }),
            "get_submodule: ModuleDict<tandem::v0::nn::Linear> 'heads' has no module 'normal', its modules are "
            "'depth', 'class'");
  EXPECT_EQ(error_text<td::ValueError>([&] { net.heads.insert<nn::Linear>("depth", 2, 1); }),
            "add: ModuleDict<tandem::v0::nn::Linear> 'heads' already contains 'depth'");
  EXPECT_EQ(error_text<td::ValueError>([&] { net.heads.add<nn::Identity>("id"); }),
            "add: 'id' of ModuleDict<tandem::v0::nn::Linear> 'heads' must be a Linear, the new module is a Identity");
}

TEST(ModuleDict, IterationFollowsTheInsertions) {
  Net net;
  std::vector<int64_t> sizes;
  for (nn::Linear* head : net.heads) sizes.push_back(head->weight.size(0));
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 5}));
  const auto items = net.heads.items();
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[1].first, "class");
  EXPECT_EQ(items[1].second, &net.heads["class"]);
}

}  // namespace
