#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

struct Net : nn::Layer {
  nn::Linear& body = add<nn::Linear>("body", 2, 3);
  nn::Replaceable<nn::Layer> fc = add_replaceable<nn::Layer, nn::Linear>("fc", 3, 10);
  Tensor forward(const Tensor& input) override { return fc(body(input)); }
};

std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& [path, tensor] : module.named_parameters()) result.push_back(path);
  return result;
}

TEST(ReplaceModule, ReplacedChildIsUsedByForwardAndStateDict) {
  Net net;
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 10}));
  const nn::Layer* const old = net.fc.get();
  {
    const std::unique_ptr<nn::Module> replaced = net.replace_module("fc", nn::Linear(3, 4, {.bias = false}));
    EXPECT_EQ(replaced.get(), old);
    EXPECT_EQ(replaced->path(), "");
    EXPECT_EQ(replaced->scope_name()->text, "Linear");
    EXPECT_EQ(td::autograd::leaf(replaced->get_parameter("weight")).name, "weight");
  }
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 4}));
  EXPECT_EQ(keys(net), (std::vector<std::string>{"body.weight", "body.bias", "fc.weight"}));
  EXPECT_EQ(net.fc->path(), "fc");
  EXPECT_EQ((*net.fc).scope_name()->text, "Linear 'fc'");
  EXPECT_EQ(td::autograd::leaf(net.get_parameter("fc.weight")).name, "fc.weight");
}

TEST(ReplaceModule, PathsAndCopiesOfTheHandleFollow) {
  nn::Module root;
  Net& net = root.add<Net>("net");
  const nn::Replaceable<nn::Layer> copy = net.fc;
  root.replace_module("net.fc", nn::Identity());
  EXPECT_EQ(copy.get(), net.fc.get());
  EXPECT_EQ(copy->scope_name()->text, "Identity 'net.fc'");
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 3}));
}

TEST(ReplaceModule, BackwardMayFollowTheReplacement) {
  Net net;
  const Tensor y = net(td::ones({1, 2}));
  const Tensor weight = net.get_parameter("fc.weight");
  net.replace_module("fc", nn::Identity());
  y.backward(td::ones({1, 10}));
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(net.body.weight.grad().defined());
}

TEST(ReplaceModule, RemovedChildIsAnErrorWhenUsed) {
  Net net;
  EXPECT_TRUE(net.fc);
  net.remove_module("fc");
  EXPECT_FALSE(net.fc);
  EXPECT_EQ(keys(net), (std::vector<std::string>{"body.weight", "body.bias"}));
  EXPECT_ERROR(td::StateError, net(td::ones({1, 2})), "Replaceable: the module was removed\n  in Net");
  EXPECT_ERROR(td::ValueError, net.remove_module("fc"),
               "remove_module: Net has no module 'fc', its modules are 'body'");
}

TEST(ReplaceModule, HandleMayOutliveTheParent) {
  auto net = std::make_unique<Net>();
  const nn::Replaceable<nn::Layer> copy = net->fc;
  net.reset();
  EXPECT_FALSE(copy);
  EXPECT_ERROR(td::StateError, copy.get(), "Replaceable: the module was removed");
}

TEST(ReplaceModule, ReferencedChildrenCannotBeReplacedOrRemoved) {
  Net net;
  const nn::Linear* const body = &net.body;
  EXPECT_ERROR(td::StateError, net.replace_module("body", nn::Linear(2, 3)),
               "replace_module: Net refers to its module 'body' by a C++ reference, which would dangle; make it a "
               "Replaceable<Linear> by add_replaceable()");
  EXPECT_THROW(net.remove_module("body"), td::StateError);
  EXPECT_EQ(&net.get_submodule("body"), body);
}

TEST(ReplaceModule, InvalidReplacementsAreRejected) {
  Net net;
  struct Pair : nn::Module {};
  EXPECT_ERROR(td::ValueError, net.replace_module("fc", std::make_unique<Pair>()),
               "replace_module: 'fc' of Net must be a Layer, the new module is a Pair");
  EXPECT_ERROR(td::ValueError, net.replace_module("fc", nullptr), "replace_module: the new module 'fc' is null");
  EXPECT_ERROR(td::ValueError, net.replace_module("", std::make_unique<Pair>()),
               "replace_module: the path is empty, expected the path of a module below Net");
  EXPECT_ERROR(td::ValueError, net.replace_module("tail", std::make_unique<Pair>()),
               "replace_module: Net has no module 'tail', its modules are 'body', 'fc'");
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 10}));
}

TEST(ReplaceModule, FrozenStructureRejectsReplacements) {
  Net net;
  for (nn::Module* const frozen : {static_cast<nn::Module*>(&net), static_cast<nn::Module*>(net.fc.get())}) {
    const td::HookHandle handle = frozen->freeze_structure("it is trained");
    const std::string reason = "the structure of " + frozen->scope_name()->text + " is fixed while it is trained";
    EXPECT_ERROR(td::StateError, net.replace_module("fc", nn::Identity()), "replace_module: " + reason);
    EXPECT_ERROR(td::StateError, net.remove_module("fc"), "remove_module: " + reason);
  }
}

TEST(ReplaceModule, SequentialUsesTheNewLayer) {
  nn::Module root;
  nn::Sequential& net = root.add<nn::Sequential>("net", nn::Linear(2, 3), nn::ReLU());
  root.replace_module("net.0", nn::Linear(2, 5));
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 5}));
  net.replace(0, nn::Identity());
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 2}));
  EXPECT_ERROR(td::ValueError, net.replace_module("0", nn::Module()),
               "replace_module: '0' of Sequential 'net' must be a Layer, the new module is a Module");
  EXPECT_ERROR(td::ValueError, net.add<nn::Module>("2"),
               "add: '2' of Sequential 'net' must be a Layer, the new module is a Module");
}

TEST(ReplaceModule, RemovedListElementsShiftTheFollowingOnes) {
  nn::Module root;
  nn::Sequential& net = root.add<nn::Sequential>("net", nn::ReLU(), nn::Linear(2, 3), nn::Linear(3, 4));
  EXPECT_EQ(net.pop(0)->type_name(), "ReLU");
  const std::vector<std::string> expected = {"net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias"};
  EXPECT_EQ(keys(root), expected);
  EXPECT_EQ(net[1].scope_name()->text, "Linear 'net.1'");
  EXPECT_EQ(td::autograd::leaf(root.get_parameter("net.1.bias")).name, "net.1.bias");
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 4}));

  nn::ReLU& inserted = net.insert(1, nn::ReLU());
  EXPECT_EQ(&net[1], &inserted);
  EXPECT_EQ(inserted.path(), "net.1");
  EXPECT_EQ(keys(root), (std::vector<std::string>{"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}));
  EXPECT_EQ(td::autograd::leaf(root.get_parameter("net.2.bias")).name, "net.2.bias");
  root.remove_module("net.1");
  EXPECT_EQ(keys(root), expected);
  net.insert(2, std::make_unique<nn::Linear>(4, 1));
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 1}));
}

TEST(ReplaceModule, InsertedListElementsMayHaveNames) {
  nn::Sequential net;
  net.add<nn::Linear>("in", 2, 3);
  net.append<nn::ReLU>();
  net.add<nn::Linear>("out", 3, 4);
  EXPECT_EQ(net(td::ones({1, 2})).shape(), td::Shape({1, 4}));
  net.pop(1);
  EXPECT_EQ(keys(net), (std::vector<std::string>{"in.weight", "in.bias", "out.weight", "out.bias"}));
}

TEST(ReplaceModule, ListIndicesAreChecked) {
  nn::ModuleList<> list;
  list.append<nn::ReLU>();
  EXPECT_ERROR(td::IndexError, list.pop(1), "ModuleList: index is 1, expected 0 <= index < 1");
  EXPECT_ERROR(td::IndexError, list.replace(-1, nn::ReLU()), "ModuleList: index is -1, expected 0 <= index < 1");
  EXPECT_ERROR(td::IndexError, list.insert(2, nn::ReLU()), "ModuleList: index is 2, expected 0 <= index < 2");
  EXPECT_ERROR(td::ValueError, list.insert(0, std::unique_ptr<nn::ReLU>()), "add: the module '1' is null");
  EXPECT_EQ(list.size(), 1);
}

TEST(ReplaceModule, DictionaryEntriesAreReplacedByKey) {
  nn::ModuleDict<> heads;
  heads.insert<nn::Linear>("a", 2, 3);
  heads.insert<nn::Linear>("b", 2, 4);
  heads.replace("a", nn::Identity());
  EXPECT_EQ(heads["a"](td::ones({1, 2})).shape(), td::Shape({1, 2}));
  EXPECT_EQ(heads.pop("a")->type_name(), "Identity");
  EXPECT_EQ(heads.keys(), std::vector<std::string>{"b"});
}

}  // namespace
