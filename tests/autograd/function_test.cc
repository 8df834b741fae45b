#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using testing::error_text;

using autograd::Function;

std::vector<double> values(const Tensor& tensor) { return tensor.to_vector<double>(); }
Tensor vector3(double a, double b, double c) { return from_vector<double>({a, b, c}, {3}).requires_grad_(); }

/// y = factor x^3.
struct Cube : Function<Cube> {
  double factor = 0;
  Tensor forward(const Tensor& x, double given_factor) {
    factor = given_factor;
    save_for_backward({x});
    return mul(mul(mul(x, x), x), Scalar(factor));
  }
  TensorList backward(const TensorList& grad_outputs) override {
    const Tensor x = saved_tensor(0);
    return {mul(grad_outputs[0], mul(mul(x, x), Scalar(3 * factor)))};
  }
};

TEST(Function, GradientUsesSavedTensorAndAttribute) {
  const Tensor x = vector3(1, 2, 3);
  const Tensor y = Cube::apply(x, 2.0);
  EXPECT_EQ(values(y), (std::vector<double>{2, 16, 54}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 24, 54}));
}

TEST(Function, BackwardInOperationsHasSecondAndThirdDerivatives) {
  const auto f = [](const std::vector<Tensor>& in) { return Cube::apply(in[0], 0.5); };
  const std::vector<Tensor> inputs = {vector3(1, -2, 0.5)};
  autograd::gradcheck(f, inputs);
  autograd::gradgradcheck(f, inputs);
  const Tensor x = inputs[0];
  const Tensor first = grad({sum(Cube::apply(x, 1.0))}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = grad({sum(first)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(grad({sum(second)}, {x})[0]), (std::vector<double>{6, 6, 6}));
}

/// (a b, a + b, number of calls of backward).
struct ProductAndSum : Function<ProductAndSum> {
  std::vector<std::vector<double>>* received = nullptr;
  std::tuple<Tensor, Tensor> forward(const Tensor& a, const Tensor& b, std::vector<std::vector<double>>* gradients) {
    received = gradients;
    Tensor product = mul(a, b);
    save_for_backward({a, b, product});
    return {product, add(a, b)};
  }
  TensorList backward(const TensorList& grads) override {
    if (received != nullptr) {
      for (const Tensor& grad : grads) received->push_back(values(grad));
    }
    const Tensor a = saved_tensor(0), b = saved_tensor(1);
    return {needs_input_grad(0) ? add(mul(grads[0], b), grads[1]) : Tensor(),
            needs_input_grad(1) ? add(mul(grads[0], a), grads[1]) : Tensor()};
  }
};

TEST(Function, SeveralOutputsRunBackwardOnceWithAllGradients) {
  const Tensor a = vector3(1, 2, 3), b = vector3(4, 5, 6);
  std::vector<std::vector<double>> received;
  const auto [product, total] = ProductAndSum::apply(a, b, &received);
  add(sum(mul(product, 10)), sum(total)).backward();
  EXPECT_EQ(received, (std::vector<std::vector<double>>{{10, 10, 10}, {1, 1, 1}}));
  EXPECT_EQ(values(a.grad()), (std::vector<double>{41, 51, 61}));
  EXPECT_EQ(values(b.grad()), (std::vector<double>{11, 21, 31}));
}

TEST(Function, OutputWithoutGradientIsZero) {
  const Tensor a = vector3(1, 2, 3), b = vector3(4, 5, 6);
  std::vector<std::vector<double>> received;
  const Tensor total = std::get<1>(ProductAndSum::apply(a, b, &received));
  sum(total).backward();
  EXPECT_EQ(received, (std::vector<std::vector<double>>{{0, 0, 0}, {1, 1, 1}}));
  EXPECT_EQ(values(b.grad()), (std::vector<double>{1, 1, 1}));
}

TEST(Function, SeveralOutputsPassGradcheckTogetherAndAlone) {
  const std::vector<Tensor> inputs = {vector3(1, -2, 3), vector3(4, 0.5, -1)};
  std::vector<std::vector<double>>* const none = nullptr;
  const auto both = [&](const std::vector<Tensor>& in) {
    const auto [product, total] = ProductAndSum::apply(in[0], in[1], none);
    return mul(product, total);
  };
  const auto product = [&](const std::vector<Tensor>& in) {
    return std::get<0>(ProductAndSum::apply(in[0], in[1], none));
  };
  for (const auto& f : std::vector<std::function<Tensor(const std::vector<Tensor>&)>>{both, product}) {
    autograd::gradcheck(f, inputs);
    autograd::gradgradcheck(f, inputs);
  }
}

TEST(Function, GradOfOneInputComputesOnlyItsGradient) {
  struct Both : Function<Both> {
    std::vector<bool>* needed = nullptr;
    Tensor forward(const Tensor& a, const Tensor& b, std::vector<bool>* asked) {
      needed = asked;
      EXPECT_TRUE(needs_input_grad(0) && needs_input_grad(1));
      return add(a, b);
    }
    TensorList backward(const TensorList& grads) override {
      *needed = {needs_input_grad(0), needs_input_grad(1)};
      return {grads[0], grads[0]};
    }
  };
  const Tensor a = vector3(1, 2, 3), b = vector3(4, 5, 6);
  std::vector<bool> needed;
  EXPECT_EQ(values(grad({sum(Both::apply(a, b, &needed))}, {b})[0]), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(needed, (std::vector<bool>{false, true}));
}

/// A saved output that depends on a saved input: y = exp(x), backward through y.
struct ExpPair : Function<ExpPair> {
  std::vector<Tensor> forward(const Tensor& x) {
    const Tensor y = exp(x);
    save_for_backward({y});
    return {y, neg(x)};
  }
  TensorList backward(const TensorList& grads) override { return {sub(mul(grads[0], saved_tensor(0)), grads[1])}; }
};

TEST(Function, SavedOutputOfSeveralHasSecondDerivativesAlsoWhenDropped) {
  const std::vector<Tensor> inputs = {vector3(0.5, -1, 2)};
  const auto first = [](const std::vector<Tensor>& in) { return ExpPair::apply(in[0])[0]; };
  const auto both = [](const std::vector<Tensor>& in) {
    const std::vector<Tensor> y = ExpPair::apply(in[0]);
    return mul(y[0], y[1]);
  };
  autograd::gradgradcheck(first, inputs);
  autograd::gradgradcheck(both, inputs);
  // The second output alone: backward of it reads the first, which no longer exists.
  const Tensor x = inputs[0];
  const Tensor given = vector3(1, 2, 3);
  const Tensor second = [&] { return ExpPair::apply(x)[1]; }();
  const Tensor first_grad = grad({sum(second)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(first_grad), (std::vector<double>{-1, -1, -1}));
  EXPECT_EQ(values(grad({sum(mul(first_grad, first_grad))}, {x})[0]), (std::vector<double>{0, 0, 0}));
}

struct Leaky : Function<Leaky> {
  std::shared_ptr<int> counter;
  std::vector<Tensor> forward(const Tensor& x, const std::shared_ptr<int>& count) {
    counter = count;
    const Tensor y = mul(x, 2);
    const Tensor z = mul(x, 3);
    save_for_backward({x, y, z});
    return {y, z};
  }
  TensorList backward(const TensorList& grads) override { return {add(grads[0], grads[1])}; }
};

TEST(Function, SavedOutputsCreateNoReferenceCycle) {
  const auto counter = std::make_shared<int>(0);
  const Tensor x = vector3(1, 2, 3);
  {
    const auto y = Leaky::apply(x, counter);
    EXPECT_EQ(counter.use_count(), 2);
    sum(add(y[0], y[1])).backward({}, /*retain_graph=*/true);
  }
  EXPECT_EQ(counter.use_count(), 1);
}

TEST(Function, FailedBackwardLeavesNoGradientBehind) {
  struct Failing : Function<Failing> {
    bool* fails = nullptr;
    Tensor forward(const Tensor& x, bool* flag) {
      fails = flag;
      return mul(x, 1);
    }
    TensorList backward(const TensorList& grads) override {
      TANDEM_CHECK(ValueError, !*fails, "Failing: as planned");
      return {grads[0]};
    }
  };
  const Tensor a = vector3(1, 2, 3), b = vector3(4, 5, 6);
  std::vector<std::vector<double>> received;
  bool fails = true;
  const auto [product, total] = ProductAndSum::apply(a, b, &received);
  const Tensor loss = add(sum(product), sum(Failing::apply(total, &fails)));
  EXPECT_THROW(loss.backward({}, true), ValueError);
  fails = false;
  sum(total).backward();  // product has no gradient now
  EXPECT_EQ(received, (std::vector<std::vector<double>>{{0, 0, 0}, {1, 1, 1}}));
}

TEST(Function, ListArgumentsHaveGradients) {
  struct Total : Function<Total> {
    Tensor forward(const std::vector<Tensor>& parts, const Tensor& factor) {
      save_for_backward({parts[0], parts[1], factor});
      return mul(add(parts[0], parts[1]), factor);
    }
    TensorList backward(const TensorList& grads) override {
      const Tensor through = mul(grads[0], saved_tensor(2));
      return {through, through, mul(grads[0], add(saved_tensor(0), saved_tensor(1)))};
    }
  };
  autograd::gradcheck(
      [](const std::vector<Tensor>& in) {
        return Total::apply(std::vector<Tensor>{in[0], in[1]}, in[2]);
      },
      {vector3(1, 2, 3), vector3(4, 5, 6), vector3(-1, 0.5, 2)});
}

TEST(Function, NonDifferentiableOutputsDoNotRequireGrad) {
  struct MaxAndMask : Function<MaxAndMask> {
    std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& x) {
      const Tensor mask = gt(x, Scalar(1.5));
      const Tensor count = mul(x, 0);
      mark_non_differentiable(count);
      save_for_backward({mask});
      return {where(mask, x, zeros_like(x)), mask, count};
    }
    TensorList backward(const TensorList& grads) override {
      EXPECT_EQ(grads[1].dtype(), kBool);
      EXPECT_EQ(values(grads[2]), (std::vector<double>{0, 0, 0}));
      return {where(saved_tensor(0), grads[0], zeros_like(grads[0]))};
    }
  };
  const Tensor x = vector3(1, 2, 3);
  const auto [y, mask, count] = MaxAndMask::apply(x);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(mask.requires_grad());
  EXPECT_FALSE(count.requires_grad());
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 1, 1}));
}

TEST(Function, UndefinedGradientsAreKeptOnRequest) {
  struct Sparse : Function<Sparse> {
    std::tuple<Tensor, Tensor> forward(const Tensor& x) {
      set_materialize_grads(false);
      return {mul(x, 2), mul(x, 3)};
    }
    TensorList backward(const TensorList& grads) override {
      EXPECT_TRUE(grads[0].defined());
      EXPECT_FALSE(grads[1].defined());
      return {mul(grads[0], 2)};
    }
  };
  const Tensor x = vector3(1, 2, 3);
  const auto outputs = Sparse::apply(x);
  sum(std::get<0>(outputs)).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{2, 2, 2}));
}

TEST(Function, ReturnedArgumentIsAnotherTensorWithTheSameMemory) {
  struct Identity : Function<Identity> {
    Tensor forward(const Tensor& x) { return x; }
    TensorList backward(const TensorList& grads) override { return {mul(grads[0], 5)}; }
  };
  const Tensor x = vector3(1, 2, 3);
  const Tensor y = Identity::apply(x);
  EXPECT_FALSE(y.is_same(x));
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_TRUE(x.is_leaf());
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{5, 5, 5}));
}

TEST(Function, ArgumentReturnedWithoutGradModeIsNotDifferentiated) {
  struct Identity : Function<Identity> {
    Tensor forward(const Tensor& x) { return x; }
    TensorList backward(const TensorList& grads) override { return {grads[0]}; }
  };
  const Tensor x = vector3(1, 2, 3);
  const NoGradGuard no_grad;
  EXPECT_FALSE(Identity::apply(x).requires_grad());
}

TEST(Function, WithoutGradModeNothingIsRecorded) {
  const Tensor x = vector3(1, 2, 3);
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(Cube::apply(x, 1.0).requires_grad());
  }
  EXPECT_FALSE(Cube::apply(x.detach(), 1.0).requires_grad());
}

TEST(Function, ChangedSavedTensorIsRejected) {
  const Tensor x = vector3(1, 2, 3);
  const Tensor y = mul(x, 1);
  const Tensor z = sum(Cube::apply(y, 1.0));
  {
    const NoGradGuard no_grad;
    y.mul_(Scalar(2));
  }
  EXPECT_ERROR(StateError, z.backward(),
               "Cube: 'saved tensor 0' (float64 [3] on cpu) was changed in place by 'mul_' after it was saved for "
               "backward (version 1, saved at 0)");
}

TEST(Function, ReleasedGraphIsRejected) {
  const Tensor x = vector3(1, 2, 3);
  const Tensor z = sum(Cube::apply(x, 1.0));
  z.backward();
  EXPECT_ERROR(
      StateError, z.backward(),
      "Cube: backward was called a second time on a released graph; pass retain_graph = true to the first call");
}

TEST(Function, WrongResultsOfBackwardAreRejected) {
  struct TooFew : Function<TooFew> {
    Tensor forward(const Tensor& a, const Tensor& b) { return add(a, b); }
    TensorList backward(const TensorList& grads) override { return {grads[0]}; }
  };
  struct WrongShape : Function<WrongShape> {
    Tensor forward(const Tensor& a) { return sum(a); }
    TensorList backward(const TensorList& grads) override { return {grads[0]}; }
  };
  struct WrongIndex : Function<WrongIndex> {
    Tensor forward(const Tensor& a) { return mul(a, 1); }
    TensorList backward(const TensorList&) override { return {saved_tensor(3)}; }
  };
  struct Undefined : Function<Undefined> {
    Tensor forward(const Tensor&) { return {}; }
    TensorList backward(const TensorList&) override { return {}; }
  };
  const Tensor x = vector3(1, 2, 3);
  EXPECT_ERROR(StateError, sum(TooFew::apply(x, x)).backward(), "TooFew: backward returned 1 gradients for 2 inputs");
  EXPECT_ERROR(ShapeError, WrongShape::apply(x).backward(),
               "WrongShape: backward returned for input 0 a gradient of shape [], expected [3]");
  EXPECT_ERROR(IndexError, sum(WrongIndex::apply(x)).backward(),
               "WrongIndex: saved_tensor(3), but 0 tensors were saved");
  EXPECT_ERROR(StateError, Undefined::apply(x), "Undefined: forward returned an undefined tensor as output 0");
}

}}  // namespace tandem
