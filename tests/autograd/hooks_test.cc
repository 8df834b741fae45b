#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using testing::error_text;

std::vector<double> values(const Tensor& tensor) { return tensor.to_vector<double>(); }
Tensor vector2(double a, double b) { return from_vector<double>({a, b}, {2}).requires_grad_(); }
using Values = std::vector<double>;

TEST(TensorHook, ResultReplacesTheGradientOfAnIntermediate) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  Values seen;
  const HookHandle hook = y.register_hook([&](const Tensor& grad) {
    seen = values(grad);
    return mul(grad, 10);
  });
  sum(add(y, mul(y, y))).backward();
  EXPECT_EQ(seen, (Values{7, 13}));  // complete: 1 + 2 y
  EXPECT_EQ(values(x.grad()), (Values{210, 390}));
}

TEST(TensorHook, LeafHookGetsTheSumBeforeAccumulation) {
  const Tensor x = vector2(1, 2);
  x.set_grad(from_vector<double>({100, 100}, {2}));
  Values seen, after;
  const HookHandle hook = x.register_hook([&](const Tensor& grad) {
    seen = values(grad);
    return mul(grad, 2);
  });
  const HookHandle post = x.register_post_accumulate_grad_hook([&](const Tensor& grad) { after = values(grad); });
  sum(add(mul(x, 3), mul(x, 4))).backward();
  EXPECT_EQ(seen, (Values{7, 7}));
  EXPECT_EQ(values(x.grad()), (Values{114, 114}));
  EXPECT_EQ(after, (Values{114, 114}));
}

TEST(TensorHook, HooksRunInOrderAndReadersMayReturnNothing) {
  const Tensor x = vector2(1, 2);
  std::string order;
  const HookHandle a = x.register_hook([&](const Tensor&) { order += "a"; });
  const HookHandle b = x.register_hook([&](const Tensor& grad) {
    order += "b";
    return mul(grad, 2);
  });
  std::optional<HookHandle> c = x.register_hook([&](const Tensor& grad) { order += str("c", values(grad)[0]); });
  sum(x).backward();
  EXPECT_EQ(order, "abc2");
  c.reset();
  sum(x).backward();
  EXPECT_EQ(order, "abc2ab");
  EXPECT_EQ(values(x.grad()), (Values{4, 4}));
}

TEST(TensorHook, GradRunsHooksOfInputsAndIntermediates) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  const HookHandle leaf_hook = x.register_hook([](const Tensor& grad) { return mul(grad, 2); });
  const HookHandle inner_hook = y.register_hook([](const Tensor& grad) { return mul(grad, 5); });
  const std::vector<Tensor> grads = grad({sum(y)}, {x, y});
  EXPECT_EQ(values(grads[0]), (Values{30, 30}));
  EXPECT_EQ(values(grads[1]), (Values{5, 5}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(TensorHook, ReplacedGradientHasSecondDerivatives) {
  const Tensor x = vector2(1, 2);
  const HookHandle hook = x.register_hook([](const Tensor& grad) { return mul(grad, grad); });
  const Tensor first = grad({sum(mul(x, x))}, {x}, {}, {.create_graph = true})[0];  // (2 x)^2
  EXPECT_EQ(values(first), (Values{4, 16}));
  EXPECT_EQ(values(grad({sum(first)}, {x})[0]), (Values{64, 256}));  // 8 x, which the hook squares
}

TEST(TensorHook, GradientsOfWrongKindAreRejectedAndTheGraphStaysUsable) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  std::optional<HookHandle> hook = y.register_hook([](const Tensor&) { return zeros({3}, {kFloat64}); });
  EXPECT_ERROR(ShapeError, sum(y).backward({}, true),
               "register_hook: a hook of a result of mul returned a gradient of shape [3], expected [2]");
  hook = x.register_hook([](const Tensor&) { return zeros({2}); });
  EXPECT_ERROR(DTypeError, sum(y).backward({}, true),
               "register_hook: a hook returned a gradient of dtype float32, expected float64");
  hook.reset();
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{3, 3}));
}

TEST(TensorHook, TensorWithoutGradientIsRejected) {
  EXPECT_EQ(error_text<StateError>([] { const HookHandle hook = zeros({2}).register_hook([](const Tensor&) {}); }),
            "register_hook: the tensor (float32 [2] on cpu) does not require grad");
}

TEST(TensorHook, HookMayDropTheGraph) {
  const Tensor x = vector2(1, 2);
  std::optional<Tensor> y = mul(x, 3);
  const HookHandle hook = y->register_hook([&](const Tensor&) { y.reset(); });
  sum(*y).backward();
  EXPECT_EQ(values(x.grad()), (Values{3, 3}));
}

TEST(TensorHook, HookOfALeafWithInPlaceGradientGetsOnlyTheNewGradient) {
  const Tensor w = from_vector<double>({1, 2}, {2, 1}).requires_grad_();
  w.set_grad(full({2, 1}, 100, {kFloat64}));
  Values seen;
  const HookHandle hook = w.register_hook([&](const Tensor& grad) {
    seen = values(grad);
    return mul(grad, 2);
  });
  sum(matmul(from_vector<double>({3, 4}, {1, 2}), w)).backward();  // writes into the slot, if there is no hook
  EXPECT_EQ(seen, (Values{3, 4}));
  EXPECT_EQ(values(w.grad()), (Values{106, 108}));
}

TEST(TensorHook, FailedBackwardLeavesNoGradientBehind) {
  struct Failing : autograd::Function<Failing> {
    Tensor forward(const Tensor& x) { return mul(x, 1); }
    TensorList backward(const TensorList&) override { throw ValueError("Failing: as planned"); }
  };
  const Tensor x = vector2(1, 2);
  const HookHandle hook = x.register_hook([](const Tensor& grad) { return mul(grad, 2); });
  const Tensor failing = Failing::apply(x);
  EXPECT_THROW(sum(add(failing, mul(x, 3))).backward(), ValueError);  // after the 3 has arrived
  sum(mul(x, 5)).backward();
  EXPECT_EQ(values(x.grad()), (Values{10, 10}));
}

TEST(TensorHook, NestedGradOfAnInputOfTheOuterOneIsRejected) {
  const Tensor x = vector2(1, 2), v = vector2(5, 5);
  const Tensor q = mul(v, 3);
  const Tensor y = mul(x, 2);
  std::function<void()> nested;
  const HookHandle hook = y.register_hook([&](const Tensor&) {
    const EnableGradGuard enable_grad;
    nested();
  });
  nested = [&] { grad({sum(mul(v, v))}, {v, x}); };
  EXPECT_ERROR(StateError, grad({sum(mul(y, y))}, {x}, {}, {.retain_graph = true}),
               "grad: reaches an input of another grad() that is still running");
  nested = [&] { sum(mul(q, 1)).backward(); };
  EXPECT_ERROR(StateError, grad({sum(mul(y, y))}, {q, x}, {}, {.retain_graph = true}),
               "backward: reaches an input of another grad() that is still running");
  Values inner;
  nested = [&] { inner = values(grad({sum(mul(v, v))}, {v})[0]); };
  EXPECT_EQ(values(grad({sum(mul(y, y))}, {x})[0]), (Values{8, 16}));
  EXPECT_EQ(inner, (Values{10, 10}));
}

TEST(TensorHook, GradientComputedUnderEnableGradIsStoredWithoutGraph) {
  const Tensor x = vector2(1, 2);
  const HookHandle hook = x.register_hook([&](const Tensor& grad) {
    const EnableGradGuard enable_grad;
    return mul(grad, x);
  });
  sum(mul(x, 3)).backward();
  EXPECT_EQ(values(x.grad()), (Values{3, 6}));
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST(RetainGrad, GradientHasItsOwnMemory) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  y.retain_grad();
  const Tensor given = from_vector<double>({1, 1}, {2});
  y.backward(given, /*retain_graph=*/true);
  given.fill_(7);
  EXPECT_EQ(values(y.grad()), (Values{1, 1}));
  y.set_grad(given);
  given.fill_(9);
  EXPECT_EQ(values(y.grad()), (Values{7, 7}));
}

TEST(RetainGrad, KeepsTheSumOfGradients) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  EXPECT_FALSE(y.grad().defined());
  y.retain_grad();
  const Tensor z = sum(mul(y, y));
  z.backward({}, true);
  EXPECT_EQ(values(y.grad()), (Values{6, 12}));
  z.backward();
  EXPECT_EQ(values(y.grad()), (Values{12, 24}));
  y.zero_grad();
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(values(x.grad()), (Values{36, 72}));
}

TEST(RetainGrad, KeepsTheGradientAfterAllHooks) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  y.retain_grad();
  const HookHandle hook = y.register_hook([](const Tensor& grad) { return mul(grad, 7); });
  sum(y).backward();
  EXPECT_EQ(values(y.grad()), (Values{7, 7}));
}

TEST(RetainGrad, FollowsTheTensorThroughInPlaceOperations) {
  const Tensor x = vector2(1, 2);
  const Tensor y = mul(x, 3);
  y.retain_grad();
  y.mul_(Scalar(2));
  sum(mul(y, 5)).backward();
  EXPECT_EQ(values(y.grad()), (Values{5, 5}));
  EXPECT_EQ(values(x.grad()), (Values{30, 30}));
}

TEST(RetainGrad, DoesNothingForLeavesAndRejectsOthers) {
  const Tensor x = vector2(1, 2);
  x.retain_grad();
  sum(x).backward();
  EXPECT_EQ(values(x.grad()), (Values{1, 1}));
  EXPECT_ERROR(StateError, zeros({2}).retain_grad(),
               "retain_grad: the tensor (float32 [2] on cpu) does not require grad");
}

TEST(SetGrad, CopiesIntoTheSlotAndBackwardAddsToIt) {
  const Tensor x = vector2(1, 2);
  const Tensor given = from_vector<double>({10, 20}, {2});
  x.set_grad(given);
  sum(x).backward();
  EXPECT_EQ(values(x.grad()), (Values{11, 21}));
  EXPECT_EQ(values(given), (Values{10, 20}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
}

TEST(SetGrad, KeepsASlotGivenByABucket) {
  const Tensor x = vector2(1, 2);
  const Tensor bucket = zeros({2}, {kFloat64});
  autograd::leaf(x).set_slot(bucket);
  x.set_grad(from_vector<double>({3, 4}, {2}));
  EXPECT_EQ(values(bucket), (Values{3, 4}));
}

TEST(SetGrad, MismatchedGradientsAreRejected) {
  const Tensor x = vector2(1, 2);
  autograd::leaf(x).name = "w";
  EXPECT_ERROR(ShapeError, x.set_grad(zeros({3}, {kFloat64})), "set_grad: 'w' has shape [2], grad has shape [3]");
  EXPECT_ERROR(DTypeError, x.set_grad(zeros({2})), "set_grad: 'w' is float64, grad is float32");
  EXPECT_ERROR(
      StateError, mul(x, 2).set_grad(zeros({2}, {kFloat64})),
      "set_grad: the tensor (float64 [2] on cpu) is the result of mul and has no gradient; call retain_grad() first");
  const Tensor y = mul(x, 2);
  y.retain_grad();
  EXPECT_ERROR(ShapeError, y.set_grad(zeros({3}, {kFloat64})), "set_grad: got a gradient of shape [3], expected [2]");
  y.set_grad(from_vector<double>({5, 6}, {2}));
  EXPECT_EQ(values(y.grad()), (Values{5, 6}));
}

}}  // namespace tandem
