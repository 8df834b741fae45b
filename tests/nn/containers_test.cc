// Sequential, ModuleList, ModuleDict and ParameterList.
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& [path, tensor] : module.state_dict().tensors()) result.push_back(path);
  return result;
}

TEST(Sequential, LayersRunInOrder) {
  td::manual_seed(1);
  nn::Sequential net;
  auto& first = net.append<nn::Linear>(3, 4);
  net.append<nn::ReLU>();
  auto& last = net.append<nn::Linear>(4, 2, {.bias = false});
  const td::Tensor x = td::from_vector<float>({1, -2, 3, 0.5, 0, -1}, {2, 3});
  EXPECT_EQ(net(x).to_vector<float>(), last(nn::ReLU()(first(x))).to_vector<float>());
  EXPECT_EQ(net.size(), 3);
  EXPECT_EQ(&net[0], &first);
  EXPECT_EQ(&net[2], &last);
}

TEST(Sequential, LayersAreNamedByIndex) {
  nn::Module root;
  root.add<nn::Sequential>("mlp", nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2, {.bias = false}));
  EXPECT_EQ(keys(root), (std::vector<std::string>{"mlp.0.weight", "mlp.0.bias", "mlp.2.weight"}));
}

/// A layer with a reference to its parameter, a child and options.
struct BlockOptions {
  bool bias = true;
  double factor = 1;
};
struct Block : nn::Layer {
  using Options = BlockOptions;
  Block(int64_t in, int64_t out, BlockOptions options = {})
      : fc(add<nn::Linear>("fc", in, out, {.bias = options.bias})),
        scale(add_parameter("scale", td::full({1}, options.factor))) {}
  td::Tensor forward(const td::Tensor& x) override { return fc(x) * scale; }

  nn::Linear& fc;
  td::Tensor& scale;
};

TEST(Sequential, LayersByValueAndFunctionsAreAppended) {
  nn::Sequential net(Block(3, 4, {.factor = 2}), nn::ReLU(), [](const td::Tensor& x) { return x + 1; });
  auto& block = static_cast<Block&>(net[0]);
  EXPECT_EQ(block.fc.path(), "0.fc");
  EXPECT_TRUE(block.scale.is_same(net.get_parameter("0.scale")));
  block.scale.detach().fill_(0);
  EXPECT_EQ(net(td::ones({1, 3})).to_vector<float>(), std::vector<float>(4, 1));
  nn::Sequential body{std::move(net), std::make_unique<nn::Flatten>()};
  EXPECT_EQ(block.fc.path(), "0.0.fc");
  EXPECT_ERROR(td::StateError, nn::Sequential(std::move(block)),
               "move: Block '0.0' is a child, which cannot be moved; create a new module");
}

TEST(Sequential, OptionsAreTakenInBraces) {
  nn::Sequential net;
  net.append<Block>(3, 4, {.bias = false});
  net.append<nn::Conv2d>(1, 2, 3, {.stride = 2, .bias = false});
  net.append<nn::Upsample>({.scale_factor = {2}});
  net.add<nn::LayerNorm>("norm", 4, {.affine = false});
  net.append(nn::ZeroPad2d({1, 0, 2, 1}));
  EXPECT_EQ(keys(net), (std::vector<std::string>{"0.scale", "0.fc.weight", "1.weight"}));
  nn::ModuleList<Block> blocks;
  blocks.append(3, 4, {.bias = false});
  blocks.append(Block(4, 5));
  blocks.replace(0, Block(3, 4));
  EXPECT_EQ(blocks.size(), 2);
}

TEST(Sequential, ConditionReachesLayersWithTwoInputs) {
  struct Shift : nn::ConditionalLayer {
    td::Tensor forward(const td::Tensor& x, const td::Tensor& t) override { return x + t; }
  };
  nn::Sequential net{Shift(), nn::ReLU(), nn::Sequential{Shift()}};
  EXPECT_EQ(net(td::full({2}, -3), td::ones({2})).to_vector<float>(), std::vector<float>(2, 1));
  EXPECT_EQ(error_text<td::ValueError>([&] { net(td::ones({2})); }).substr(0, 38),
            "Shift: called without its condition; c");
}

TEST(Sequential, EmptySequentialReturnsItsInput) {
  nn::Sequential net;
  const td::Tensor x = td::ones({3});
  EXPECT_TRUE(net(x).is_same(x));
}

TEST(Sequential, SequentialCanBeNested) {
  nn::Sequential net{nn::Sequential(nn::ReLU()), nn::Flatten()};
  EXPECT_EQ(net(td::full({2, 3, 4}, -1)).to_vector<float>(), std::vector<float>(24, 0));
  net.eval();
  EXPECT_FALSE(static_cast<nn::Sequential&>(net[0])[0].is_training());
}

TEST(Sequential, OutOfRangeIndexIsRejected) {
  nn::Sequential net;
  net.append<nn::ReLU>();
  EXPECT_ERROR(td::IndexError, net[1], "Sequential: index is 1, expected 0 <= index < 1");
  EXPECT_THROW(net[-1], td::IndexError);
}

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
  EXPECT_EQ(keys(net), (std::vector<std::string>{"blocks.0.scale", "blocks.1.scale"}));
  EXPECT_ERROR(td::IndexError, net.blocks[2], "ModuleList: index is 2, expected 0 <= index < 2");
  EXPECT_ERROR(td::IndexError, net.blocks[-1], "ModuleList: index is -1, expected 0 <= index < 2");
}

TEST(ModuleList, DifferentLayerTypesCanBeMixed) {
  nn::ModuleList<> layers;
  layers.append<nn::Linear>(3, 2);
  layers.append<nn::Identity>();
  EXPECT_EQ(layers[0](td::ones({4, 3})).shape(), td::Shape({4, 2}));
  EXPECT_EQ(layers[1].scope_name()->text, "Identity '1'");
}

struct Heads : nn::Module {
  Heads() {
    heads.insert<nn::Linear>("depth", 2, 1);
    heads.insert("class", nn::Linear(2, 5, {.bias = false}));
  }
  nn::ModuleDict<nn::Linear>& heads = add<nn::ModuleDict<nn::Linear>>("heads");
};

TEST(ModuleDict, KeysAreNamesInOrderOfInsertion) {
  Heads net;
  EXPECT_EQ(keys(net), (std::vector<std::string>{"heads.depth.weight", "heads.depth.bias", "heads.class.weight"}));
  EXPECT_EQ(net.heads.keys(), (std::vector<std::string>{"depth", "class"}));
  EXPECT_EQ(net.heads.size(), 2);
}

TEST(ModuleDict, ModulesAreFoundByKey) {
  Heads net;
  EXPECT_EQ(net.heads["class"](td::ones({1, 2})).shape(), td::Shape({1, 5}));
  EXPECT_TRUE(net.heads.contains("depth"));
  EXPECT_FALSE(net.heads.contains("normal"));
  EXPECT_ERROR(td::ValueError, net.heads["normal"],
               "get_submodule: ModuleDict<tandem::v0::nn::Linear> 'heads' has no module 'normal', its modules are "
               "'depth', 'class'");
  EXPECT_ERROR(td::ValueError, net.heads.insert<nn::Linear>("depth", 2, 1),
               "add: ModuleDict<tandem::v0::nn::Linear> 'heads' already contains 'depth'");
  EXPECT_ERROR(
      td::ValueError, net.heads.add<nn::Identity>("id"),
      "add: 'id' of ModuleDict<tandem::v0::nn::Linear> 'heads' must be a Linear, the new module is a Identity");
}

TEST(ModuleDict, IterationFollowsTheInsertions) {
  Heads net;
  std::vector<int64_t> sizes;
  for (nn::Linear* head : net.heads) sizes.push_back(head->weight.size(0));
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 5}));
  const auto items = net.heads.items();
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[1].first, "class");
  EXPECT_EQ(items[1].second, &net.heads["class"]);
}

TEST(ParameterList, ParametersAreNamedByIndex) {
  nn::Module root;
  nn::ParameterList& list = root.add<nn::ParameterList>("scales", std::vector<td::Tensor>{td::ones({2})});
  td::Tensor& second = list.append(td::full({3}, 2));
  EXPECT_EQ(keys(root), (std::vector<std::string>{"scales.0", "scales.1"}));
  EXPECT_TRUE(second.requires_grad());
  EXPECT_EQ(&list[1], &second);
  EXPECT_EQ(list.size(), 2);
  int64_t elements = 0;
  for (const td::Tensor& parameter : list) elements += parameter.numel();
  EXPECT_EQ(elements, 5);
}

TEST(ParameterList, OutOfRangeIndexIsRejected) {
  nn::ParameterList list;
  EXPECT_ERROR(td::IndexError, list[0], "ParameterList: index is 0, expected 0 <= index < 0");
}

}  // namespace
