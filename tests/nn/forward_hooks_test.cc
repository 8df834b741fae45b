#include <tandem/tests/nn/nn.h>
#include <tandem/tests/support/allocations.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::HookHandle;
using td::Tensor;

namespace {

/// y = 2 x.
struct Double : nn::Layer {
  Tensor forward(const Tensor& input) override {
    ++calls;
    return td::mul(input, 2);
  }
  int calls = 0;
};

float value(const Tensor& tensor) { return tensor.item<float>(); }

TEST(ForwardHooks, HooksSeeInputAndOutputInOrder) {
  Double layer;
  std::string journal;
  const HookHandle after1 =
      layer.register_forward_hook([&](nn::Layer& self, const Tensor& input, const Tensor& output) {
        EXPECT_EQ(&self, &layer);
        journal += td::str("c", value(input), ",", value(output), " ");
      });
  const HookHandle before1 = layer.register_forward_pre_hook([&](nn::Layer& self, const Tensor& input) {
    EXPECT_EQ(&self, &layer);
    journal += td::str("a", value(input), " ");
  });
  const HookHandle before2 = layer.register_forward_pre_hook([&](nn::Layer&, const Tensor&) { journal += "b "; });
  const HookHandle after2 =
      layer.register_forward_hook([&](nn::Layer&, const Tensor&, const Tensor&) { journal += "d "; });
  EXPECT_EQ(value(layer(td::full({}, 3))), 6);
  EXPECT_EQ(journal, "a3 b c3,6 d ");
}

TEST(ForwardHooks, HooksReplaceInputAndOutput) {
  Double layer;
  const HookHandle before1 =
      layer.register_forward_pre_hook([](nn::Layer&, const Tensor& input) { return td::add(input, 1); });
  const HookHandle before2 =
      layer.register_forward_pre_hook([](nn::Layer&, const Tensor& input) { return td::mul(input, 10); });
  float seen = 0;
  const HookHandle after1 = layer.register_forward_hook([&](nn::Layer&, const Tensor& input, const Tensor& output) {
    seen = value(input);
    return td::add(output, 5);
  });
  const HookHandle after2 =
      layer.register_forward_hook([](nn::Layer&, const Tensor&, const Tensor& output) { return td::neg(output); });
  const HookHandle unchanged =
      layer.register_forward_hook([](nn::Layer&, const Tensor&, const Tensor&) { return Tensor(); });
  EXPECT_EQ(value(layer(td::full({}, 3))), -85);  // -(2 * (3 + 1) * 10 + 5)
  EXPECT_EQ(seen, 40);
}

TEST(ForwardHooks, ReplacementsAreDifferentiated) {
  nn::Linear layer(1, 1);
  const HookHandle hook =
      layer.register_forward_hook([](nn::Layer&, const Tensor&, const Tensor& output) { return td::mul(output, 3); });
  layer(td::full({1, 1}, 2)).backward();
  EXPECT_EQ(layer.weight.grad().item<float>(), 6);
}

TEST(ForwardHooks, RemovedHooksAreNotCalled) {
  Double layer;
  int before = 0, after = 0;
  HookHandle first = layer.register_forward_pre_hook([&](nn::Layer&, const Tensor&) { ++before; });
  {
    const HookHandle second = layer.register_forward_hook([&](nn::Layer&, const Tensor&, const Tensor&) { ++after; });
    layer(td::ones({1}));
  }
  first.remove();
  layer(td::ones({1}));
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
  EXPECT_EQ(layer.calls, 2);
}

TEST(ForwardHooks, HookMayRemoveItself) {
  Double layer;
  int calls = 0;
  HookHandle once;
  once = layer.register_forward_pre_hook([&](nn::Layer&, const Tensor&) {
    ++calls;
    once.remove();
  });
  layer(td::ones({1}));
  layer(td::ones({1}));
  EXPECT_EQ(calls, 1);
}

TEST(ForwardHooks, ExceptionsEndTheCallAndNameTheLayer) {
  nn::Sequential net;
  Double& layer = net.append<Double>();
  HookHandle failing = layer.register_forward_pre_hook(
      [](nn::Layer&, const Tensor&) { throw std::runtime_error(td::with_module_scope("no")); });
  EXPECT_ERROR(std::runtime_error, net(td::ones({1})), "no\n  in Double '0'");
  EXPECT_EQ(layer.calls, 0);
  EXPECT_EQ(td::with_module_scope("after"), "after");
  failing.remove();
  EXPECT_EQ(value(net(td::ones({1}))), 2);
}

TEST(ForwardHooks, HandleMayOutliveTheLayer) {
  HookHandle handle;
  {
    Double layer;
    handle = layer.register_forward_pre_hook([](nn::Layer&, const Tensor&) {});
  }
  handle.remove();
}

TEST(ForwardHooks, CallsWithoutHooksAllocateNothingMore) {
  Double layer;
  const Tensor x = td::ones({1});
  layer(x);  // makes the name of the scope
  const auto allocations = [](auto f) {
    const int64_t before = td::testing::heap_allocations();
    f();
    return td::testing::heap_allocations() - before;
  };
  EXPECT_EQ(allocations([&] { layer(x); }), allocations([&] { layer.forward(x); }));
}

TEST(ForwardHooks, CallsWithMoreArgumentsRunHooks) {
  nn::MultiheadAttention attention(4, 2);
  int calls = 0;
  const HookHandle hook = attention.register_forward_hook([&](nn::Layer&, const Tensor&, const Tensor&) { ++calls; });
  const Tensor x = td::ones({1, 3, 4});
  attention(x);
  attention(x, td::zeros({3, 3}));
  EXPECT_EQ(calls, 2);

  nn::BatchNorm2d norm(1);
  const HookHandle zero =
      norm.register_forward_pre_hook([](nn::Layer&, const Tensor& input) { return td::zeros(input.shape()); });
  const Tensor image = td::arange(4).to(td::kFloat32).view({1, 1, 2, 2});
  EXPECT_EQ(norm.add_relu(image, image).to_vector<float>(), image.to_vector<float>());
}

TEST(BackwardHooks, HookGetsBothGradientsAndMayReplaceTheInputGradient) {
  Double first, second;
  nn::Layer* called = nullptr;
  float seen_input = 0, seen_output = 0;
  const HookHandle hook =
      second.register_full_backward_hook([&](nn::Layer& layer, const Tensor& grad_input, const Tensor& grad_output) {
        called = &layer;
        seen_input = value(grad_input);
        seen_output = value(grad_output);
        return td::mul(grad_input, 10);
      });
  const Tensor x = td::ones({}).requires_grad_();
  td::mul(second(first(x)), 3).backward();
  EXPECT_EQ(called, &second);
  EXPECT_EQ(seen_output, 3);
  EXPECT_EQ(seen_input, 6);
  EXPECT_EQ(value(x.grad()), 120);
}

TEST(BackwardHooks, InputWithoutGradientIsUndefined) {
  nn::Linear layer(1, 1);
  int calls = 0;
  std::optional<HookHandle> hook =
      layer.register_full_backward_hook([&](nn::Layer&, const Tensor& grad_input, const Tensor& grad_output) {
        ++calls;
        EXPECT_FALSE(grad_input.defined());
        EXPECT_EQ(value(grad_output), 1);
      });
  const Tensor x = td::ones({1, 1});
  layer(x).sum().backward();
  EXPECT_EQ(calls, 1);
  const Tensor later = layer(x).sum();
  hook.reset();  // removed hooks do not run, also for earlier calls
  later.backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(value(layer.weight.grad()), 2);
}

TEST(BackwardHooks, GradientOfAParameterAloneMakesNoReferenceCycle) {
  nn::Linear first(64, 64), second(64, 64);
  const HookHandle hook = second.register_full_backward_hook([](nn::Layer&, const Tensor&, const Tensor&) {});
  const Tensor x = td::ones({64, 64});
  const auto allocated = [&] {
    const Tensor y = second(first(x));
    td::grad({td::mul(y, y).sum()}, {second.weight}, {}, {.create_graph = true});
    return td::memory_stats(td::Device()).allocated;
  };
  const int64_t once = allocated();
  EXPECT_EQ(allocated(), once);
}

TEST(BackwardHooks, EachCallOfALayerHasItsOwnGradients) {
  Double layer;
  std::vector<float> outputs;
  const HookHandle hook = layer.register_full_backward_hook(
      [&](nn::Layer&, const Tensor&, const Tensor& grad_output) { outputs.push_back(value(grad_output)); });
  const Tensor x = td::ones({}).requires_grad_();
  layer(layer(x)).backward();
  EXPECT_EQ(outputs, (std::vector<float>{1, 2}));
  EXPECT_EQ(value(x.grad()), 4);
}

}  // namespace
