#include <tandem/base/trace.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
using td::Tensor;
using td::nn::Layer;
using td::nn::Module;
using td::testing::error_text;

namespace {

struct Scale : Layer {
  explicit Scale(float value = 1) : scale(add_parameter("scale", td::full({2}, value))) {}
  Tensor forward(const Tensor& input) override {
    last_scope = td::with_module_scope("");
    return td::mul(input, scale);
  }
  Tensor& scale;
  Tensor& steps = add_buffer("steps", td::zeros({}, {td::kInt64}));
  std::string last_scope;
};

struct Block : Layer {
  Scale& first = add<Scale>("first", 2.0f);
  Scale& second = add<Scale>("second", 3.0f);
  Tensor& shift = add_parameter("shift", td::full({2}, 0.5));
  Tensor forward(const Tensor& input) override { return td::add(second(first(input)), shift); }
};

struct Net : Layer {
  Block& encoder = add<Block>("encoder");
  Scale& head = add<Scale>("head", 5.0f);
  Tensor forward(const Tensor& input) override { return head(encoder(input)); }
};

using Paths = std::vector<std::string>;

Paths paths(const std::vector<std::pair<std::string, Tensor>>& named) {
  Paths result;
  for (const auto& [path, tensor] : named) result.push_back(path);
  return result;
}

TEST(Module, ParametersAndBuffersAreNamedByPath) {
  const Net net;
  EXPECT_EQ(paths(net.named_parameters()),
            (Paths{"encoder.shift", "encoder.first.scale", "encoder.second.scale", "head.scale"}));
  EXPECT_EQ(paths(net.named_buffers()), (Paths{"encoder.first.steps", "encoder.second.steps", "head.steps"}));
  EXPECT_EQ(net.parameters().size(), 4u);
  EXPECT_TRUE(net.parameters()[3].is_same(net.head.scale));
  EXPECT_EQ(net.path(), "");
  EXPECT_EQ(net.encoder.second.path(), "encoder.second");
  EXPECT_EQ(net.encoder.second.type_name(), "Scale");
  EXPECT_EQ(net.encoder.second.scope_name()->text, "Scale 'encoder.second'");
  EXPECT_EQ(net.scope_name()->text, "Net");
}

template <int kWidth>
struct Wide : Layer {
  Tensor forward(const Tensor& input) override { return input; }
};

TEST(Module, TypeNamesOmitNamespaces) {
  struct Local : Layer {
    Tensor forward(const Tensor& input) override { return input; }
  };
  EXPECT_EQ(Local().type_name(), "Local");
  EXPECT_EQ(Wide<3>().type_name(), "Wide<3>");
  EXPECT_EQ(Module().type_name(), "Module");
}

TEST(Module, LeafNamesArePathsFromTheRoot) {
  Net net;
  EXPECT_EQ(td::autograd::leaf(net.encoder.first.scale).name, "encoder.first.scale");
  EXPECT_EQ(td::autograd::leaf(net.encoder.shift).name, "encoder.shift");
  Module root;
  auto inner = std::make_unique<Net>();
  EXPECT_EQ(inner->head.scope_name()->text, "Scale 'head'");
  Net& adopted = root.add_module("net", std::move(inner));
  EXPECT_EQ(td::autograd::leaf(adopted.encoder.first.scale).name, "net.encoder.first.scale");
  EXPECT_EQ(adopted.head.scope_name()->text, "Scale 'net.head'");
}

struct Tied : Module {
  Scale& encoder = add<Scale>("encoder");
  Module& decoder = add<Module>("decoder");
  Tensor& again = decoder.add_parameter("weight", encoder.scale);
};

TEST(Module, TiedParameterIsListedUnderFirstPath) {
  const Tied tied;
  EXPECT_EQ(paths(tied.named_parameters()), (Paths{"encoder.scale"}));
  EXPECT_EQ(td::autograd::leaf(tied.again).name, "encoder.scale");
  Module root;
  const Tied& adopted = root.add<Tied>("model");
  EXPECT_EQ(td::autograd::leaf(adopted.again).name, "model.encoder.scale");

  const td::State state = tied.state_dict();
  EXPECT_NE(state.find("encoder.scale"), nullptr);
  EXPECT_NE(state.find("decoder.weight"), nullptr);
}

TEST(Module, UndefinedTensorsAreNotListed) {
  Module module;
  EXPECT_FALSE(module.add_parameter("bias", Tensor()).defined());
  EXPECT_FALSE(module.add_buffer("mean", Tensor()).defined());
  EXPECT_TRUE(module.parameters().empty());
  EXPECT_TRUE(module.state_dict().empty());
  EXPECT_ERROR(td::ValueError, module.add_parameter("bias", Tensor()), "add_parameter: Module already contains 'bias'");
}

TEST(Module, ParameterReferencesStayValid) {
  Module module;
  const Tensor& first = module.add_parameter("p0", td::ones({1}));
  for (int i = 1; i < 100; ++i) module.add_parameter(td::str("p", i), td::ones({1}));
  EXPECT_TRUE(first.is_same(module.parameters()[0]));
}

TEST(Module, InvalidNamesAreRejected) {
  Net net;
  EXPECT_ERROR(td::ValueError, net.add<Scale>(""), "add: invalid name '', expected a non-empty text without '.'");
  EXPECT_ERROR(td::ValueError, net.add<Scale>("a.b"), "add: invalid name 'a.b', expected a non-empty text without '.'");
  EXPECT_ERROR(td::ValueError, net.add<Scale>("head"), "add: Net already contains 'head'");
  EXPECT_ERROR(td::ValueError, net.head.add_buffer("scale", td::ones({1})),
               "add_buffer: Scale 'head' already contains 'scale'");
  EXPECT_ERROR(td::ValueError, net.add_module("tail", std::unique_ptr<Scale>()), "add: the module 'tail' is null");
  EXPECT_EQ(net.parameters().size(), 4u);
}

TEST(Module, InvalidParametersAndBuffersAreRejected) {
  Module module;
  const Tensor x = td::ones({2, 3}).requires_grad_();
  EXPECT_ERROR(
      td::StateError, module.add_parameter("p", td::mul(x, x)),
      "add_parameter: 'p' is the result of an operation (float32 [2, 3] on cpu), expected a leaf; use detach()");
  EXPECT_ERROR(td::StateError, module.add_parameter("p", td::ones({2, 3}).t()),
               "add_parameter: 'p' is not contiguous (float32 [3, 2] on cpu); use contiguous()");
  EXPECT_ERROR(td::StateError, module.add_buffer("b", x),
               "add_buffer: 'b' requires grad; use add_parameter() or detach()");
  EXPECT_THROW(module.add_parameter("p", td::ones({2}, {td::kInt64})), td::DTypeError);
  EXPECT_TRUE(module.state_dict().empty());
}

TEST(Module, StateDictKeysMatchPyTorch) {
  const Net net;
  EXPECT_EQ(paths(net.state_dict().tensors()),
            (Paths{"encoder.shift", "encoder.first.scale", "encoder.first.steps", "encoder.second.scale",
                   "encoder.second.steps", "head.scale", "head.steps"}));
  const Tensor scale = net.state_dict().get<Tensor>("head.scale");
  EXPECT_FALSE(scale.requires_grad());
  EXPECT_EQ(scale.data_ptr(), net.head.scale.data_ptr());
}

TEST(Module, StateDictLoadsAcrossDevices) {
  td::set_cpu_device_count(2);
  Net net;
  Net other;
  td::primitives::fill(net.encoder.shift, 7);
  td::primitives::fill(net.head.steps, 12);
  other.to(td::Device("cpu:1"));
  const uint32_t version = other.encoder.shift.version();
  other.load_state_dict(net.state_dict());
  EXPECT_EQ(other.encoder.shift.to_vector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(other.head.steps.item<int64_t>(), 12);
  EXPECT_EQ(other.encoder.shift.device(), td::Device("cpu:1"));
  EXPECT_GT(other.encoder.shift.version(), version);
  EXPECT_TRUE(other.encoder.shift.requires_grad());
  net.load_state_dict(net.state_dict());  // shares memory with the module
  EXPECT_EQ(net.head.steps.item<int64_t>(), 12);
}

TEST(Module, LoadErrorListsEveryMismatch) {
  Net net;
  td::State state;
  state.set("encoder.shift", td::full({3}, 9));
  state.set("encoder.first.scale", td::full({2}, 9));
  state.set("encoder.first.steps", td::full({}, 9));
  state.set("encoder.second.scale", int64_t{3});
  state.set("head.scale", td::full({2}, 9));
  state.set("head.weight", td::full({2}, 9));
  state.set("version", int64_t{1});
  EXPECT_ERROR(td::StateError, net.load_state_dict(state),
               "load_state_dict: the state does not fit Net"
               "\n  different   encoder.shift: float32 [2] expected, float32 [3] in the state"
               "\n  different   encoder.first.steps: int64 [] expected, float32 [] in the state"
               "\n  different   encoder.second.scale: float32 [2] expected, an integer in the state"
               "\n  missing     encoder.second.steps"
               "\n  missing     head.steps"
               "\n  unexpected  head.weight"
               "\n  unexpected  version");
  EXPECT_EQ(net.head.scale.to_vector<float>(), (std::vector<float>{5, 5}));
}

TEST(Module, ToMovesGradientsAndTensorHandles) {
  td::set_cpu_device_count(2);
  const td::Device device("cpu:1");
  Tied tied;
  const Tensor handle = tied.encoder.scale;
  td::primitives::fill(td::autograd::leaf(handle).slot(), 4);
  td::autograd::leaf(handle).mark_filled();
  tied.to(device);
  EXPECT_EQ(handle.device(), device);
  EXPECT_TRUE(handle.is_same(tied.again));
  EXPECT_EQ(handle.to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(handle.grad().device(), device);
  EXPECT_EQ(handle.grad().to_vector<float>(), (std::vector<float>{4, 4}));
  EXPECT_EQ(tied.encoder.steps.device(), device);

  tied.zero_grad();
  td::mul(handle, td::full({2}, 3, {td::kFloat32, device})).backward(td::full({2}, 0.5, {td::kFloat32, device}));
  EXPECT_EQ(handle.grad().to_vector<float>(), (std::vector<float>{1.5, 1.5}));
  EXPECT_EQ(td::autograd::leaf(handle).name, "encoder.scale");
}

TEST(Module, FailedMoveLeavesModuleUnchanged) {
  td::set_cpu_device_count(2);
  const td::Device device("cpu:1");
  Module module;
  const Tensor a = module.add_parameter("a", td::ones({100}));
  const Tensor b = module.add_parameter("b", td::ones({1 << 20}));
  td::set_memory_limit(device, td::memory_stats(device).allocated + 4096);
  EXPECT_THROW(module.to(device), td::OutOfMemory);
  td::set_memory_limit(device, 0);
  EXPECT_EQ(a.device(), td::Device());
  EXPECT_EQ(b.device(), td::Device());
}

TEST(Module, ModuleWithBucketGradientsCannotMove) {
  td::set_cpu_device_count(2);
  Net net;
  td::autograd::leaf(net.head.scale).set_slot(td::zeros({2}));
  EXPECT_ERROR(td::StateError, net.to(td::Device("cpu:1")),
               "to: the gradient of 'head.scale' is stored in a DistributedDataParallel bucket");
  EXPECT_EQ(net.encoder.shift.device(), td::Device());
}

TEST(Module, TrainAndEvalApplyToAllSubmodules) {
  Net net;
  EXPECT_TRUE(net.encoder.first.is_training());
  net.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_FALSE(net.encoder.first.is_training());
  net.encoder.train();
  EXPECT_TRUE(net.encoder.first.is_training());
  EXPECT_FALSE(net.head.is_training());
}

TEST(Module, ZeroGradClearsEveryGradient) {
  Net net;
  net(td::ones({2})).backward(td::tensor({0.5, -2.0}));
  for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.grad().defined());
  net.zero_grad();
  for (const Tensor& parameter : net.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Module, FrozenStructureRejectsChanges) {
  Net net;
  {
    const td::HookHandle first = net.encoder.freeze_structure("a DistributedDataParallel owns its parameters");
    const td::HookHandle second = net.encoder.freeze_structure("another reason");
    const std::string reason =
        "the structure of Block 'encoder' is fixed while a DistributedDataParallel owns its parameters";
    EXPECT_ERROR(td::StateError, net.to(td::Device()), "to: " + reason);
    EXPECT_ERROR(td::StateError, net.encoder.to(td::Device()), "to: " + reason);
    EXPECT_ERROR(td::StateError, net.encoder.first.to(td::Device()), "to: " + reason);
    EXPECT_ERROR(td::StateError, net.encoder.first.add_parameter("p", td::ones({1})), "add_parameter: " + reason);
    EXPECT_ERROR(td::StateError, net.encoder.add_buffer("p", td::ones({1})), "add_buffer: " + reason);
    EXPECT_ERROR(td::StateError, net.encoder.add<Scale>("third"), "add: " + reason);
    net.add<Scale>("sibling");
    net.head.to(td::Device());
  }
  net.to(td::Device());
  net.encoder.add<Scale>("third");
}

TEST(Module, FreezeHandleMayOutliveItsModule) {
  td::HookHandle handle;
  {
    Net net;
    handle = net.freeze_structure("reason");
  }
  handle.remove();
}

TEST(ModuleScope, ErrorsNameTheRunningModule) {
  Net net;
  net(td::ones({2}));
  EXPECT_EQ(net.encoder.first.last_scope, "\n  in Scale 'encoder.first'");
  EXPECT_EQ(net.head.last_scope, "\n  in Scale 'head'");
  EXPECT_EQ(td::with_module_scope("outside"), "outside");
  const std::string text = error_text<td::ShapeError>([&] { net(td::ones({3})); });
  EXPECT_TRUE(text.ends_with("\n  in Scale 'encoder.first'")) << text;
  EXPECT_EQ(td::with_module_scope("after a throw"), "after a throw");
}

TEST(ModuleScope, RecordedOperationsKeepTheirScope) {
  Net net;
  const Tensor y = net.encoder(td::ones({2}));
  const auto edge = td::autograd::edge_to(y);
  ASSERT_TRUE(edge.node);
  ASSERT_TRUE(edge.node->module_scope());
  EXPECT_EQ(edge.node->module_scope()->text, "Block 'encoder'");
}

TEST(ModuleScope, CustomCallSignatureCanOpenScope) {
  struct Pair : Module {
    std::string operator()(int, int) const {
      const td::nn::ModuleScope scope(*this);
      return td::with_module_scope("x");
    }
  };
  Module root;
  EXPECT_EQ(root.add<Pair>("pair")(1, 2), "x\n  in Pair 'pair'");
}

TEST(ModuleScope, ScopeNameIsCreatedOnceAcrossThreads) {
  const Net net;
  std::vector<td::RefPtr<td::ScopeName>> names(4);
  std::vector<std::thread> threads;
  for (auto& name : names) threads.emplace_back([&] { name = net.encoder.first.scope_name(); });
  for (auto& thread : threads) thread.join();
  for (const auto& name : names) EXPECT_TRUE(name == names[0]);
}

TEST(ModuleScope, ALayerThatIsNotRegisteredIsReportedOnce) {
  struct Outer : Layer {
    Tensor forward(const Tensor& x) override { return own(registered(x)); }
    Scale own;
    Scale& registered = add<Scale>("registered");
  };
  const auto logged = [](Layer& net) {
    testing::internal::CaptureStderr();
    net(td::ones({2}));
    return testing::internal::GetCapturedStderr();
  };
  Outer outer, frozen;
  const std::string text = logged(outer);
  EXPECT_NE(text.find("Scale is called in Outer, which does not own it"), std::string::npos) << text;
  EXPECT_NE(text.find("create it by add<Scale>(..)"), std::string::npos) << text;
  EXPECT_EQ(logged(outer), "");
  EXPECT_EQ(logged(outer.own), "");  // not inside of another module
  frozen.own.requires_grad_(false);  // as a pretrained model that is not trained
  EXPECT_EQ(logged(frozen), "");
}

TEST(Layer, ForwardRecordsTraceEvents) {
  Net net;
  td::start_trace();
  net(td::ones({2}));
  Paths names;
  for (const td::TraceEvent& event : td::stop_trace()) {
    if (event.category == "forward") names.push_back(event.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names,
            (Paths{"Block 'encoder'", "Net", "Scale 'encoder.first'", "Scale 'encoder.second'", "Scale 'head'"}));
}

}  // namespace
