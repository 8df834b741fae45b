#include <tandem/base/rank_context.h>
#include <tandem/tests/support/ops.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { namespace {

using autograd::BackwardContext;
using testing::error_text;

Tensor leaf_of(std::vector<double> values) {
  const auto n = static_cast<int64_t>(values.size());
  return from_vector(values, {n}).requires_grad_();
}

/// y = factor * x; backward appends the node's name to a journal.
struct ScaleNode final : autograd::Node {
  double factor = 1;
  std::string label;
  std::vector<std::string>* journal = nullptr;
  TensorList backward(BackwardContext& context) override {
    if (journal != nullptr) journal->push_back(label);
    return {mul(context.grad(), Scalar(factor))};
  }
};

Tensor scale(const Tensor& x, double factor, std::string label = "", std::vector<std::string>* journal = nullptr) {
  Tensor y;
  {
    NoGradGuard no_grad;
    y = mul(x, Scalar(factor));
  }
  if (auto* node = autograd::record<ScaleNode>("scale", y, x)) {
    node->factor = factor;
    node->label = std::move(label);
    node->journal = journal;
  }
  return y;
}

/// A node whose backward returns gradients given by the test.
struct FakeNode final : autograd::Node {
  TensorList gradients;
  TensorList backward(BackwardContext&) override { return gradients; }
};

TEST(Engine, GradientsOfDiamondPathsAreSummed) {
  Tensor x = leaf_of({1, 2, 3});
  Tensor a = scale(x, 2), b = scale(x, 5);
  add(a, b).backward(from_vector<double>({1, 10, 100}, {3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{7, 70, 700}));
}

TEST(Engine, GradientsAccumulateUntilZeroGrad) {
  Tensor x = leaf_of({1, 2});
  const Tensor w = from_vector<double>({3, 4}, {2});
  scale(x, 2).backward(w);
  scale(x, 2).backward(w);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{12, 16}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  scale(x, 3).backward(w);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{9, 12}));
}

TEST(Engine, TensorUsedTwiceGetsBothGradients) {
  Tensor x = leaf_of({3});
  mul(x, x).backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Engine, BackwardOfLeafStoresGivenGradient) {
  Tensor x = leaf_of({3, 4});
  x.backward(from_vector<double>({5, 6}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{5, 6}));
}

TEST(Engine, GivenGradientIsNotChangedByAccumulation) {
  Tensor x = leaf_of({3, 4});
  const Tensor w = from_vector<double>({5, 6}, {2});
  x.backward(w);
  x.backward(w);
  EXPECT_EQ(w.to_vector<double>(), (std::vector<double>{5, 6}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{10, 12}));
}

// A function that called itself for each node would overflow the stack; AddressSanitizer's frames are larger.
constexpr int kManyNodes = testing::kAddressSanitizer ? 100'000 : 1'000'000;

TEST(Engine, BackwardThroughMillionNodesSucceeds) {
  Tensor x = leaf_of({1});
  Tensor y = x;
  {
    const Tensor w = from_vector<double>({2}, {1});
    for (int i = 0; i < kManyNodes; ++i) y = scale(y, 1);
    y.backward(w);
  }
  EXPECT_EQ(x.grad().item(), 2);
}

TEST(Engine, MillionNodesAreDestroyedWithoutBackward) {
  Tensor y = leaf_of({1});
  for (int i = 0; i < kManyNodes; ++i) y = scale(y, 1);
  EXPECT_TRUE(y.requires_grad());
}

TEST(Engine, LeafHookFiresBeforeOlderNodesRun) {
  // Layer k: y = layer(y) * w_k. The hook of w_k must run before the backward of earlier layers.
  std::vector<std::string> journal;
  std::vector<Tensor> weights;
  std::vector<HookHandle> hooks;
  Tensor y = leaf_of({1, 1});
  for (int k = 0; k < 4; ++k) {
    weights.push_back(leaf_of({2, 3}));
    hooks.push_back(weights.back().register_post_accumulate_grad_hook(
        [&journal, k](const Tensor&) { journal.push_back("hook" + std::to_string(k)); }));
    y = mul(scale(y, 1, "layer" + std::to_string(k), &journal), weights.back());
  }
  y.backward(from_vector<double>({1, 2}, {2}));
  EXPECT_EQ(journal,
            (std::vector<std::string>{"hook3", "layer3", "hook2", "layer2", "hook1", "layer1", "hook0", "layer0"}));
}

TEST(Engine, TiedLeafHookFiresOnceAndLast) {
  std::vector<std::string> journal;
  Tensor tied = leaf_of({2});
  Tensor other = leaf_of({3});
  const HookHandle h1 = tied.register_post_accumulate_grad_hook(
      [&](const Tensor& g) { journal.push_back("tied " + std::to_string(g.item())); });
  const HookHandle h2 = other.register_post_accumulate_grad_hook([&](const Tensor&) { journal.push_back("other"); });
  const Tensor x = from_vector<double>({5}, {1});
  mul(mul(mul(x, tied), other), tied).backward();  // d/dtied = 2 * 5 * 3 * 2
  EXPECT_EQ(journal, (std::vector<std::string>{"other", "tied 60.000000"}));
}

TEST(Engine, HookIsRemovedByItsHandle) {
  Tensor x = leaf_of({1});
  int first = 0, second = 0;
  HookHandle h1 = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++first; });
  const HookHandle h2 = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++second; });
  scale(x, 2).backward();
  h1.remove();
  scale(x, 2).backward();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

TEST(Engine, HookMayAddAndRemoveHooks) {
  Tensor x = leaf_of({1});
  std::vector<std::string> journal;
  HookHandle later, added;
  HookHandle self = x.register_post_accumulate_grad_hook([&](const Tensor&) {
    journal.push_back("first");
    later.remove();
    added = x.register_post_accumulate_grad_hook([&](const Tensor&) { journal.push_back("added"); });
    self.remove();
  });
  later = x.register_post_accumulate_grad_hook([&](const Tensor&) { journal.push_back("removed"); });
  scale(x, 2).backward();
  EXPECT_EQ(journal, (std::vector<std::string>{"first"}));
  scale(x, 2).backward();
  EXPECT_EQ(journal, (std::vector<std::string>{"first", "added"}));
}

TEST(Engine, LeafCompletesWhenOneBranchDropsGradient) {
  // The node in between returns no gradient; the leaf's other contribution must still complete it.
  Tensor x = leaf_of({4});
  int fired = 0;
  const HookHandle h = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++fired; });
  Tensor dropped = scale(x, 1).detach().clone();
  ASSERT_NE(autograd::record<FakeNode>("fake", dropped, scale(x, 1)), nullptr);
  static_cast<FakeNode&>(*dropped.impl().autograd).gradients = {Tensor()};
  add(scale(x, 3), dropped).backward();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(x.grad().item(), 3);
}

TEST(Engine, CallbackRunsAfterTheLastGradient) {
  std::vector<std::string> journal;
  Tensor x = leaf_of({1});
  const HookHandle h = x.register_post_accumulate_grad_hook([&](const Tensor&) {
    autograd::queue_callback([&] { journal.push_back("end"); });
    journal.push_back("hook");
  });
  Tensor z = leaf_of({1});
  const HookHandle hz = z.register_post_accumulate_grad_hook([&](const Tensor&) { journal.push_back("z"); });
  mul(scale(z, 1), x).backward();
  EXPECT_EQ(journal, (std::vector<std::string>{"hook", "z", "end"}));
}

TEST(Engine, QueueCallbackOutsideBackwardIsRejected) {
  EXPECT_ERROR(StateError, autograd::queue_callback([] {}), "queue_callback: no backward is running on this thread");
}

TEST(Engine, SecondBackwardRequiresRetainGraph) {
  Tensor x = leaf_of({1, 2});
  Tensor y = mul(x, x);
  const Tensor w = from_vector<double>({1, 1}, {2});
  y.backward(w);
  EXPECT_ERROR(
      StateError, y.backward(w),
      "mul: backward was called a second time on a released graph; pass retain_graph = true to the first call");
  Tensor z = mul(x, x);
  z.backward(w, /*retain_graph=*/true);
  z.backward(w);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 12}));
}

TEST(Engine, InPlaceChangeOfSavedTensorIsRejected) {
  Tensor x = leaf_of({1, 2});
  Tensor y = exp(x);
  y.detach().add_(1);
  EXPECT_ERROR(StateError, y.backward(from_vector<double>({1, 1}, {2})),
               "exp: 'output' (float64 [2] on cpu) was changed in place by 'add_' after it was saved for backward "
               "(version 1, saved at 0)");
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, InputChangedThroughAliasIsRejected) {
  Tensor x = leaf_of({1, 2});
  Tensor y = scale(x, 3);
  y.detach().mul_(2);
  EXPECT_ERROR(StateError, scale(y, 1),
               "scale: input 0 (float64 [2] on cpu, made by 'scale') was changed in place by 'mul_' through another "
               "tensor that shares its memory, so its gradient would be wrong; clone one of them");
}

TEST(Engine, MismatchedGradientsFromBackwardAreRejected) {
  Tensor x = leaf_of({1, 2});
  const auto faulty = [&](Tensor gradient, size_t count) {
    Tensor y = x.detach().clone();
    autograd::record<FakeNode>("fake", y, x);
    auto& node = static_cast<FakeNode&>(*y.impl().autograd);
    for (size_t i = 0; i < count; ++i) node.gradients.push_back(gradient);
    y.backward(from_vector<double>({1, 1}, {2}));
  };
  EXPECT_ERROR(ShapeError, faulty(zeros({3}, {kFloat64}), 1),
               "fake: backward returned for input 0 a gradient of shape [3], expected [2]");
  EXPECT_ERROR(DTypeError, faulty(zeros({2}, {kFloat32}), 1),
               "fake: backward returned for input 0 a gradient of dtype float32, expected float64");
  EXPECT_ERROR(StateError, faulty(zeros({2}, {kFloat64}), 2), "fake: backward returned 2 gradients for 1 inputs");
}

TEST(Engine, InvalidCallerArgumentsAreRejected) {
  Tensor x = leaf_of({1, 2});
  EXPECT_ERROR(ShapeError, scale(x, 2).backward(),
               "backward: the gradient may be omitted only for a tensor with one element, not for float64 [2] on cpu");
  EXPECT_ERROR(
      StateError, x.detach().backward(x),
      "backward: the tensor (float64 [2] on cpu) does not require grad and was not computed from a tensor that does");
  EXPECT_ERROR(ShapeError, scale(x, 2).backward(zeros({1}, {kFloat64})),
               "backward: got a gradient of shape [1], expected [2]");
  const Tensor y = scale(x, 2);
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  const Tensor elsewhere = zeros({2}, {kFloat64, Device("cpu:1")});
  EXPECT_ERROR(DeviceError, y.backward(elsewhere),
               "backward: the gradient (float64 [2] on cpu:1) is on another device than the tensor (float64 [2] on "
               "cpu); move it with gradient.to(cpu)");
  EXPECT_ERROR(DeviceError, grad({&y, 1}, {&x, 1}, {&elsewhere, 1}),
               "grad: the gradient (float64 [2] on cpu:1) is on another device than the tensor (float64 [2] on cpu); "
               "move it with gradient.to(cpu)");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_ERROR(ValueError, grad({&y, 1}, {}), "grad: inputs is empty");
  EXPECT_ERROR(DTypeError, tensor({1, 2}).requires_grad_(),
               "requires_grad_: only floating-point tensors can require gradients, got int64 [2] on cpu");
}

TEST(Engine, FailedBackwardLeavesGraphUsable) {
  Tensor x = leaf_of({1, 2});
  Tensor y = scale(x, 2);
  EXPECT_THROW(y.backward(zeros({1}, {kFloat64})), ShapeError);
  y.backward(from_vector<double>({1, 3}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 6}));
}

TEST(Engine, BackwardErrorNamesTheModule) {
  Tensor x = leaf_of({1});
  RankContext& context = RankContext::current();
  context.module_scope = make_ref<ScopeName>("Linear 'encoder.fc1'");
  Tensor y = exp(x);
  context.module_scope = nullptr;
  y.detach().add_(1);
  EXPECT_ERROR(StateError, y.backward(),
               "exp: 'output' (float64 [1] on cpu) was changed in place by 'add_' after it was saved for backward "
               "(version 1, saved at 0)\n  in Linear 'encoder.fc1'");
}

TEST(Engine, GradGuardsNestAndControlRecording) {
  Tensor x = leaf_of({1});
  NoGradGuard no_grad;
  EXPECT_FALSE(scale(x, 2).requires_grad());
  EnableGradGuard enable;
  EXPECT_TRUE(scale(x, 2).requires_grad());
}

TEST(Engine, InPlaceChangeOfLeafRequiresNoGrad) {
  Tensor x = leaf_of({1, 2});
  EXPECT_ERROR(StateError, x.add_(1),
               "add_: a leaf that requires grad is changed in place (float64 [2] on cpu); do it under a NoGradGuard, "
               "or use the form that returns a new tensor");
  {
    NoGradGuard no_grad;
    x.add_(1);
  }
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{2, 3}));
}

TEST(Engine, InPlaceOperationIsDifferentiated) {
  Tensor x = leaf_of({1, 2});
  Tensor y = scale(x, 3);
  y.mul_(x.detach());
  y.backward(from_vector<double>({1, 10}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 60}));
}

TEST(Engine, CreateGraphGivesSecondDerivatives) {
  Tensor x = leaf_of({2});
  Tensor y = mul(mul(x, x), x);
  Tensor g = grad({&y, 1}, {&x, 1}, {}, {.create_graph = true})[0];
  EXPECT_EQ(g.item(), 12);
  Tensor gg = grad({&g, 1}, {&x, 1})[0];
  EXPECT_EQ(gg.item(), 12);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, CreateGraphBackwardStoresDifferentiableGradient) {
  Tensor x = leaf_of({2});
  mul(mul(x, x), x).backward({}, false, /*create_graph=*/true);
  Tensor g = x.grad();
  EXPECT_EQ(g.item(), 12);
  ASSERT_TRUE(g.requires_grad());
  EXPECT_EQ(grad({&g, 1}, {&x, 1})[0].item(), 12);
  scale(x, 5).backward();  // an ordinary backward must not write into the recorded gradient
  EXPECT_EQ(g.item(), 12);
  EXPECT_EQ(x.grad().item(), 17);
}

TEST(Engine, GradHandlesInnerDuplicateAndUnreachedInputs) {
  Tensor x = leaf_of({2});
  Tensor unrelated = leaf_of({1});
  Tensor inner = scale(x, 3);
  Tensor y = mul(inner, inner);
  const std::vector<Tensor> inputs = {inner, unrelated, inner, x};
  const std::vector<Tensor> g = grad({&y, 1}, inputs);
  EXPECT_EQ(g[0].item(), 12);
  EXPECT_FALSE(g[1].defined());
  EXPECT_TRUE(g[2].is_same(g[0]));
  EXPECT_EQ(g[3].item(), 36);
}

TEST(Engine, GradAcceptsInitializerLists) {
  const Tensor x = leaf_of({3}), y = leaf_of({5});
  const std::vector<Tensor> grads = grad({mul(x, y), y}, {x, y});
  EXPECT_EQ(grads[0].item(), 5);
  EXPECT_EQ(grads[1].item(), 4);
  const Tensor scaled = grad({mul(x, y)}, {x}, {leaf_of({2}).detach()}, {.create_graph = true})[0];
  EXPECT_EQ(scaled.item(), 10);
  EXPECT_TRUE(scaled.requires_grad());
}

TEST(Engine, GradRunsOnlyNodesLeadingToInputs) {
  std::vector<std::string> journal;
  Tensor x = leaf_of({2}), z = leaf_of({3});
  int fired = 0;
  const HookHandle h = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++fired; });
  Tensor y = mul(scale(x, 2, "x", &journal), scale(z, 2, "z", &journal));
  EXPECT_EQ(grad({&y, 1}, {&x, 1})[0].item(), 12);
  EXPECT_EQ(journal, (std::vector<std::string>{"x"}));
  EXPECT_EQ(fired, 0);
  EXPECT_FALSE(x.grad().defined());
}

}}  // namespace tandem
