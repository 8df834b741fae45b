// Walking over modules, looking them up, and changing all of their parameters.
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

struct Block : nn::Layer {
  nn::Linear& fc = add<nn::Linear>("fc", 2, 3);
  nn::BatchNorm2d& norm = add<nn::BatchNorm2d>("norm", 3);
  Tensor forward(const Tensor& input) override { return fc(input); }
};

/// The weight of `head` is that of `encoder.fc`.
struct Net : nn::Module {
  Block& encoder = add<Block>("encoder");
  nn::Module& head = add<nn::Module>("head");
  Tensor& tied = head.add_parameter("weight", encoder.fc.weight);
  Tensor& positions = add_buffer("positions", td::arange(4));
};

using Paths = std::vector<std::string>;

template <class Named>
Paths names(const Named& named) {
  Paths result;
  for (const auto& [name, value] : named) result.push_back(name);
  return result;
}

TEST(ModuleTree, ModulesAreListedParentsFirst) {
  Net net;
  const Paths all = {"", "encoder", "encoder.fc", "encoder.norm", "head"};
  EXPECT_EQ(names(net.named_modules()), all);
  EXPECT_EQ(names(std::as_const(net).named_modules()), all);
  EXPECT_EQ(net.modules(),
            (std::vector<nn::Module*>{&net, &net.encoder, &net.encoder.fc, &net.encoder.norm, &net.head}));
  EXPECT_EQ(net.children(), (std::vector<nn::Module*>{&net.encoder, &net.head}));
  const nn::Module& constant = net;
  EXPECT_EQ(constant.children(), (std::vector<const nn::Module*>{&net.encoder, &net.head}));
  EXPECT_EQ(constant.modules().size(), 5u);
}

TEST(ModuleTree, ChildrenCanBeChanged) {
  Net net;
  for (const auto& [name, child] : net.named_children()) child->train(name == "head");
  EXPECT_FALSE(net.encoder.fc.is_training());
  EXPECT_TRUE(net.head.is_training());
}

TEST(ModuleTree, ApplyVisitsChildrenBeforeTheirParents) {
  Net net;
  Paths visited;
  nn::Module& returned = net.apply([&](nn::Module& module) { visited.push_back(module.path()); });
  EXPECT_EQ(visited, (Paths{"encoder.fc", "encoder.norm", "encoder", "head", ""}));
  EXPECT_EQ(&returned, &net);
  net.apply([](nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->bias = td::full({3}, 7);
  });
  EXPECT_EQ(net.encoder.fc.bias.to_vector<float>(), std::vector<float>(3, 7));
}

void set_bias(nn::Module& module) { module.get_submodule<nn::Linear>("").bias.detach().fill_(1); }
[[maybe_unused]] void set_bias(nn::Linear& linear) { linear.bias.detach().fill_(2); }
void double_bias(nn::Linear& linear) { linear.bias.detach().mul_(2); }

TEST(ModuleTree, ApplyTakesFunctionsByName) {
  Net net;
  net.apply(double_bias).apply([](nn::BatchNorm2d& norm) { norm.weight.detach().fill_(3); });
  EXPECT_EQ(net.encoder.norm.weight.to_vector<float>(), std::vector<float>(3, 3));
  net.encoder.fc.apply(set_bias);  // the overload for any module
  EXPECT_EQ(net.encoder.fc.bias.to_vector<float>(), std::vector<float>(3, 1));
}

TEST(ModuleTree, PathsFindModulesParametersAndBuffers) {
  Net net;
  EXPECT_EQ(&net.get_submodule(""), &net);
  EXPECT_EQ(&net.get_submodule("encoder.fc"), &net.encoder.fc);
  EXPECT_EQ(&net.get_submodule<nn::BatchNorm2d>("encoder.norm"), &net.encoder.norm);
  EXPECT_EQ(&std::as_const(net).get_submodule<nn::Layer>("encoder"), &net.encoder);
  EXPECT_TRUE(net.get_parameter("encoder.fc.weight").is_same(net.encoder.fc.weight));
  EXPECT_TRUE(net.get_buffer("positions").is_same(net.positions));
  EXPECT_TRUE(net.get_buffer("encoder.norm.running_var").is_same(net.encoder.norm.running_var));
}

TEST(ModuleTree, UnknownPathErrorListsExistingPaths) {
  Net net;
  EXPECT_ERROR(td::ValueError, net.get_submodule("encoder.conv"),
               "get_submodule: Block 'encoder' has no module 'conv', its modules are 'fc', 'norm'");
  EXPECT_ERROR(td::ValueError, net.get_submodule("head.fc.weight"),
               "get_submodule: Module 'head' has no module 'fc', its modules are none");
  EXPECT_ERROR(td::ValueError, net.get_submodule("encoder."),
               "get_submodule: Block 'encoder' has no module '', its modules are 'fc', 'norm'");
  EXPECT_ERROR(td::ValueError, net.get_submodule<nn::Linear>("encoder.norm"),
               "get_submodule: BatchNorm2d 'encoder.norm' is not a Linear");
  EXPECT_ERROR(td::ValueError, net.get_parameter("encoder.fc.scale"),
               "get_parameter: Linear 'encoder.fc' has no parameter 'scale', its parameters are 'weight', 'bias'");
  EXPECT_ERROR(td::ValueError, net.get_parameter("tail.weight"),
               "get_parameter: Net has no module 'tail', its modules are 'encoder', 'head'");
  EXPECT_ERROR(td::ValueError, net.get_buffer("weight"),
               "get_buffer: Net has no buffer 'weight', its buffers are 'positions'");
}

TEST(ModuleTree, RequiresGradAppliesToAllParameters) {
  Net net;
  EXPECT_EQ(&net.requires_grad_(false), &net);
  for (const Tensor& parameter : net.parameters()) EXPECT_FALSE(parameter.requires_grad());
  net.encoder.requires_grad_();
  for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(ModuleTree, ToConvertsFloatingPointTensorsInPlace) {
  Net net;
  const Tensor handle = net.tied;
  const auto values = handle.to_vector<float>();
  td::mul(handle, handle).backward(td::ones({3, 2}));
  int hooks_run = 0;
  const td::HookHandle hook = handle.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks_run; });
  net.to(td::kFloat64);
  EXPECT_EQ(handle.dtype(), td::kFloat64);
  EXPECT_TRUE(handle.is_same(net.encoder.fc.weight));
  EXPECT_EQ(handle.to_vector<float>(), values);
  EXPECT_EQ(handle.grad().dtype(), td::kFloat64);
  EXPECT_EQ(handle.grad().to_vector<float>()[3], 2 * values[3]);
  EXPECT_EQ(net.encoder.norm.running_var.dtype(), td::kFloat64);
  EXPECT_EQ(net.encoder.norm.num_batches_tracked.dtype(), td::kInt64);
  EXPECT_EQ(net.positions.dtype(), td::kInt64);

  net.zero_grad();
  net.encoder(td::ones({1, 2}, {td::kFloat64})).backward(td::ones({1, 3}, {td::kFloat64}));
  EXPECT_EQ(handle.grad().to_vector<double>(), std::vector<double>(6, 1));
  EXPECT_EQ(hooks_run, 1);
  EXPECT_EQ(td::autograd::leaf(handle).name, "encoder.fc.weight");
}

TEST(ModuleTree, ToChangesDeviceAndDType) {
  td::set_cpu_device_count(2);
  const td::Device device("cpu:1");
  Net net;
  net.to(device, td::kFloat16);
  EXPECT_EQ(net.tied.dtype(), td::kFloat16);
  EXPECT_EQ(net.tied.device(), device);
  EXPECT_EQ(net.positions.dtype(), td::kInt64);
  EXPECT_EQ(net.positions.device(), device);
}

TEST(ModuleTree, ToRejectsIntegersFrozenStructuresAndBuckets) {
  Net net;
  EXPECT_ERROR(td::DTypeError, net.to(td::kInt64), "to: dtype is int64, expected a floating-point dtype");
  {
    const td::HookHandle frozen = net.encoder.freeze_structure("it is trained");
    EXPECT_ERROR(td::StateError, net.to(td::kFloat64),
                 "to: the structure of Block 'encoder' is fixed while it is trained");
  }
  td::autograd::leaf(net.tied).set_slot(td::zeros({3, 2}));
  EXPECT_ERROR(td::StateError, net.to(td::kFloat64),
               "to: the gradient of 'encoder.fc.weight' is stored in a DistributedDataParallel bucket");
  EXPECT_EQ(net.encoder.fc.bias.dtype(), td::kFloat32);
}

struct Rotary : nn::Module {
  Tensor& table = add_buffer("table", td::full({3}, 2), {.persistent = false});
  Tensor& mean = add_buffer("mean", td::zeros({3}));
};

TEST(ModuleState, NonPersistentBuffersAreNotSaved) {
  td::set_cpu_device_count(2);
  Rotary rotary;
  EXPECT_EQ(names(rotary.named_buffers()), (Paths{"table", "mean"}));
  EXPECT_EQ(names(rotary.state_dict().tensors()), (Paths{"mean"}));
  td::State state;
  state.set("mean", td::ones({3}));
  rotary.load_state_dict(state);
  EXPECT_EQ(rotary.mean.to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(rotary.table.to_vector<float>(), std::vector<float>(3, 2));
  state.set("table", td::ones({3}));
  EXPECT_ERROR(td::StateError, rotary.load_state_dict(state),
               "load_state_dict: the state does not fit Rotary\n  unexpected  table");
  rotary.to(td::Device("cpu:1"));
  EXPECT_EQ(rotary.table.device(), td::Device("cpu:1"));
}

TEST(ModuleState, LoadingNotStrictlyReportsUnusedKeys) {
  Net net;
  td::State state;
  state.set("encoder.fc.bias", td::full({3}, 4));
  state.set("head.weight", td::full({3, 2}, 5));  // also encoder.fc.weight
  state.set("classifier.weight", td::ones({2}));
  state.set("epoch", int64_t{3});
  const nn::LoadReport keys = net.load_state_dict(state, {.strict = false});
  EXPECT_EQ(keys.missing_keys,
            (Paths{"positions", "encoder.norm.weight", "encoder.norm.bias", "encoder.norm.running_mean",
                   "encoder.norm.running_var", "encoder.norm.num_batches_tracked"}));
  EXPECT_EQ(keys.unexpected_keys, (Paths{"classifier.weight", "epoch"}));
  EXPECT_EQ(net.encoder.fc.bias.to_vector<float>(), std::vector<float>(3, 4));
  EXPECT_EQ(net.encoder.fc.weight.to_vector<float>(), std::vector<float>(6, 5));
}

TEST(ModuleState, LoadingStrictlyReportsNoKeys) {
  Net net;
  const nn::LoadReport keys = net.load_state_dict(Net().state_dict());
  EXPECT_TRUE(keys.missing_keys.empty());
  EXPECT_TRUE(keys.unexpected_keys.empty());
}

TEST(ModuleState, DifferentShapesAreErrorsAlsoIfNotStrict) {
  Net net;
  td::State state;
  state.set("encoder.fc.bias", td::full({4}, 4));
  state.set("epoch", int64_t{3});
  EXPECT_ERROR(td::StateError, net.load_state_dict(state, {.strict = false}),
               "load_state_dict: the state does not fit Net"
               "\n  different   encoder.fc.bias: float32 [3] expected, float32 [4] in the state");
}

TEST(UnitsOfParameters, ListsInListsAreReplacedByTheirModules) {
  struct Nested : nn::Module {
    nn::ModuleList<nn::Module>& groups = add<nn::ModuleList<nn::Module>>("groups");
    Nested() {
      auto& list = groups.append<nn::ModuleList<>>();
      list.append<nn::Linear>(2, 2);
      list.append<nn::Linear>(2, 2);
      groups.append<nn::ModuleDict<>>().add<nn::Linear>("up", 2, 2);
      groups.append<nn::Sequential>().append<nn::Linear>(2, 2);
    }
  };
  EXPECT_EQ(Nested().units_of_parameters({}), (Paths{"groups.0.0", "groups.0.0", "groups.0.1", "groups.0.1",
                                                     "groups.1.up", "groups.1.up", "groups.2", "groups.2"}));
}

TEST(UnitsOfParameters, ALargeRootUnitIsReported) {
  const auto logged = [](const nn::Module& model, const Paths& units) {
    testing::internal::CaptureStderr();
    model.units_of_parameters(units);
    return testing::internal::GetCapturedStderr();
  };
  const nn::Sequential model(nn::Linear(2, 2), nn::Linear(2, 2), nn::Linear(2, 2));
  const std::string text = logged(model, {});
  EXPECT_NE(text.find("the root unit has 100 % of the bytes of Sequential"), std::string::npos) << text;
  EXPECT_NE(logged(model, {"0"}).find("the root unit has 66 %"), std::string::npos);
  EXPECT_EQ(logged(model, {"0", "1"}), "");
}

}  // namespace
