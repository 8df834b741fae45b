#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

struct Net : nn::Module {
  explicit Net(int64_t width = 3) : fc(add<nn::Linear>("fc", width, width)) {}
  nn::Linear& fc;
  nn::BatchNorm2d& norm = add<nn::BatchNorm2d>("norm", 2);
  nn::Module& head = add<nn::Module>("head");
  Tensor& weight = head.add_parameter("weight", fc.weight);
  Tensor& absent = add_parameter("absent", Tensor());
  Tensor& table = add_buffer("table", td::zeros({2}), {.persistent = false});
};

TEST(Clone, CopiedTensorsHaveTheirOwnMemory) {
  td::manual_seed(1);
  Net net(4);
  net.table.fill_(5);
  net.norm.num_batches_tracked.fill_(7);
  const std::unique_ptr<Net> copy = nn::clone(net, [] { return std::make_unique<Net>(4); });
  const auto mine = net.named_parameters(), theirs = copy->named_parameters();
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].first, theirs[i].first);
    EXPECT_EQ(mine[i].second.to_vector<float>(), theirs[i].second.to_vector<float>());
    EXPECT_NE(mine[i].second.data_ptr(), theirs[i].second.data_ptr());
    EXPECT_EQ(td::autograd::leaf(theirs[i].second).name, theirs[i].first);
  }
  EXPECT_EQ(copy->table.to_vector<float>(), std::vector<float>(2, 5));
  EXPECT_EQ(copy->norm.num_batches_tracked.item<int64_t>(), 7);
  copy->fc.bias.detach().fill_(9);
  EXPECT_NE(net.fc.bias.to_vector<float>()[0], 9);
  EXPECT_EQ(nn::clone(*copy, [] { return std::make_unique<Net>(4); })->fc.bias.to_vector<float>()[0], 9);
}

TEST(Clone, TiedTensorsStayTied) {
  Net net;
  const std::unique_ptr<Net> copy = nn::clone(net);
  EXPECT_TRUE(copy->weight.is_same(copy->fc.weight));
  EXPECT_EQ(copy->parameters().size(), net.parameters().size());
}

TEST(Clone, TiesMadeOrRemovedAfterConstructionAreCopied) {
  Net net;
  net.weight = td::full({3, 3}, 2).requires_grad_();
  const std::unique_ptr<Net> untied = nn::clone(net);
  EXPECT_FALSE(untied->weight.is_same(untied->fc.weight));
  EXPECT_EQ(untied->weight.to_vector<float>(), std::vector<float>(9, 2));
  EXPECT_EQ(untied->fc.weight.to_vector<float>(), net.fc.weight.to_vector<float>());

  struct Two : nn::Module {
    nn::Linear& a = add<nn::Linear>("a", 2, 2);
    nn::Linear& b = add<nn::Linear>("b", 2, 2);
  };
  Two two;
  two.b.weight = two.a.weight;
  const std::unique_ptr<Two> tied = nn::clone(two);
  EXPECT_TRUE(tied->b.weight.is_same(tied->a.weight));
}

TEST(Clone, ModesAndRequiresGradAreCopiedButNotGradients) {
  Net net;
  net.norm.eval();
  net.fc.bias.requires_grad_(false);
  net.fc(td::ones({1, 3})).backward(td::ones({1, 3}));
  const std::unique_ptr<Net> copy = nn::clone(net);
  EXPECT_TRUE(copy->is_training());
  EXPECT_FALSE(copy->norm.is_training());
  EXPECT_FALSE(copy->fc.bias.requires_grad());
  EXPECT_TRUE(copy->fc.weight.requires_grad());
  EXPECT_TRUE(net.fc.weight.grad().defined());
  EXPECT_FALSE(copy->fc.weight.grad().defined());
  copy->fc(td::ones({1, 3})).backward(td::ones({1, 3}));
  EXPECT_EQ(copy->fc.weight.grad().to_vector<float>(), std::vector<float>(9, 1));
}

TEST(Clone, DTypesAndDevicesAreCopied) {
  td::set_cpu_device_count(2);
  Net net;
  net.to(td::Device("cpu:1"), td::kFloat64);
  const std::unique_ptr<Net> copy = nn::clone(net);
  EXPECT_EQ(copy->fc.weight.device(), td::Device("cpu:1"));
  EXPECT_EQ(copy->fc.weight.dtype(), td::kFloat64);
  EXPECT_EQ(copy->table.dtype(), td::kFloat64);
  const Tensor x = td::ones({1, 3}, {td::kFloat64, td::Device("cpu:1")});
  copy->fc(x).backward(x);
  EXPECT_EQ(copy->fc.weight.grad().dtype(), td::kFloat64);
}

TEST(Clone, RandomStreamIsNotAdvanced) {
  const Net net;
  td::manual_seed(3);
  const auto expected = td::rand({4}).to_vector<float>();
  td::manual_seed(3);
  nn::clone(net);
  EXPECT_EQ(td::rand({4}).to_vector<float>(), expected);
}

TEST(Clone, AppendedLayersAreCopiedByTheFactory) {
  const auto make = [] { return std::make_unique<nn::Sequential>(nn::Linear(2, 3), nn::Dropout(0.25)); };
  const std::unique_ptr<nn::Sequential> net = make();
  const std::unique_ptr<nn::Sequential> copy = nn::clone(*net, make);
  copy->eval();
  net->eval();
  EXPECT_EQ((*copy)(td::ones({1, 2})).to_vector<float>(), (*net)(td::ones({1, 2})).to_vector<float>());
}

TEST(CopyState, HandlesOfTheNewModuleFollow) {
  Net net, copy;
  const Tensor handle = copy.fc.weight;
  nn::copy_state(net, copy);
  EXPECT_TRUE(handle.is_same(copy.fc.weight));
  EXPECT_EQ(handle.to_vector<float>(), net.fc.weight.to_vector<float>());
}

TEST(CopyState, DifferentStructuresAreListed) {
  nn::Sequential a(nn::Linear(2, 2), nn::Identity());
  nn::Sequential b{nn::Dropout(), nn::Identity()};
  a.add_buffer("mask", td::ones({1}), {.persistent = false});
  b.add_buffer("mask", td::ones({1}), {.persistent = false});
  a[1].add_buffer("mean", td::ones({1}));
  EXPECT_ERROR(td::StateError, nn::copy_state(a, b),
               "copy_state: the modules have different structures"
               "\n  Linear '0': Linear(weight, bias), and in the new module Dropout()"
               "\n  Identity '1': Identity(mean), and in the new module Identity()");
  nn::Sequential c;
  EXPECT_ERROR(td::StateError, nn::copy_state(a, c),
               "copy_state: the modules have different structures"
               "\n  Sequential: Sequential(mask (not persistent), 0, 1), and in the new module Sequential()");
}

TEST(CopyState, FrozenStructureIsRejected) {
  Net net, copy;
  const td::HookHandle frozen = copy.fc.freeze_structure("it is trained");
  EXPECT_ERROR(td::StateError, nn::copy_state(net, copy),
               "copy_state: the structure of Linear 'fc' is fixed while it is trained");
}

}  // namespace
