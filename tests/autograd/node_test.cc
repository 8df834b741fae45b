#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

struct IdentityNode final : autograd::Node {
  autograd::SavedTensor output{*this, "output"};
  bool* destroyed = nullptr;
  ~IdentityNode() override {
    if (destroyed != nullptr) *destroyed = true;
  }
  TensorList backward(autograd::BackwardContext& context) override { return {context.grad()}; }
};

Tensor identity(const Tensor& x, bool* destroyed = nullptr) {
  Tensor y = x.detach().clone();
  if (auto* node = autograd::record<IdentityNode>("identity", y, x)) {
    node->output.save(y);
    node->destroyed = destroyed;
  }
  return y;
}

/// Records which gradients its backward gets.
struct TwoGradientsNode final : autograd::Node {
  std::vector<std::vector<double>>* received = nullptr;

  TwoGradientsNode() { accepts_two_gradients = true; }
  TensorList backward(autograd::BackwardContext& context) override {
    const Tensor &first = context.grad(), &second = context.second_grad();
    received->push_back(first.to_vector<double>());
    if (second.defined()) received->push_back(second.to_vector<double>());
    return {second.defined() ? add(first, second) : first};
  }
};

/// y = x, with the gradients for y = 2 y + 3 y + ..., one term per consumer.
struct TwoGradients {
  std::vector<std::vector<double>> received;
  Tensor x = ones({1}, {kFloat64}).requires_grad_(), y = x.detach().clone(), sum;

  explicit TwoGradients(int consumers) {
    autograd::record<TwoGradientsNode>("two_gradients", y, x)->received = &received;
    for (int i = 0; i < consumers; ++i) {
      const Tensor term = mul(y, i + 2);
      sum = sum.defined() ? add(sum, term) : term;
    }
  }
};

using Received = std::vector<std::vector<double>>;

TEST(Node, ReceivesTwoGradientsIfItAcceptsThem) {
  const Received expected[] = {{{2}}, {{3}, {2}}, {{4}, {5}}};  // the newest consumer's, and the sum of the others'
  for (int consumers = 1; consumers <= 3; ++consumers) {
    TwoGradients graph(consumers);
    graph.sum.backward();
    EXPECT_EQ(graph.received, expected[consumers - 1]);
    EXPECT_EQ(graph.x.grad().item<double>(), consumers * (consumers + 3) / 2);
  }
}

TEST(Node, ReceivesTheSumWhereOthersReadIt) {
  {
    TwoGradients graph(2);
    std::vector<double> seen;
    const HookHandle handle = graph.y.register_hook([&](const Tensor& gradient) {
      seen.push_back(gradient.item<double>());
      return Tensor();
    });
    graph.sum.backward();
    EXPECT_EQ(graph.received, (Received{{5}}));
    EXPECT_EQ(seen, std::vector<double>{5});
  }
  {
    TwoGradients graph(2);
    EXPECT_EQ(grad({graph.sum}, {graph.y, graph.x})[0].item<double>(), 5);
    EXPECT_EQ(graph.received, (Received{{5}}));
  }
  {
    TwoGradients graph(2);
    EXPECT_EQ(grad({graph.sum}, {graph.x}, {}, {.create_graph = true})[0].item<double>(), 5);
    EXPECT_EQ(graph.received, (Received{{5}}));
  }
}

TEST(Node, FailedBackwardDropsBothGradients) {
  TwoGradients graph(0);
  const Tensor oldest = mul(graph.y, 7), first = mul(graph.y, 2), second = mul(graph.y, 3), sum = add(first, second);
  {
    const HookHandle handle = oldest.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
    EXPECT_THROW(add(oldest, sum).backward(), std::runtime_error);  // after both gradients of `sum`
  }
  sum.backward();
  EXPECT_EQ(graph.received, (Received{{3}, {2}}));
}

/// Doubles its gradient, in place if it may.
struct DoublingNode final : autograd::Node {
  bool* overwrote = nullptr;
  TensorList backward(autograd::BackwardContext& context) override {
    *overwrote = context.may_overwrite(context.grad());
    if (!*overwrote) return {mul(context.grad(), 2)};
    Tensor gradient = context.grad();
    return {gradient.mul_(2)};
  }
};

TEST(Node, OverwritesOnlyGradientsOfNoOtherTensor) {
  Tensor x = ones({2}, {kFloat64}).requires_grad_();
  bool overwrote[2] = {};
  const auto doubled = [&](bool& flag) {
    const Tensor y = x.detach().clone();
    autograd::record<DoublingNode>("doubled", y, x)->overwrote = &flag;
    return y;
  };
  const std::vector<double> twos = {2, 2}, tens = {10, 10};
  {  // the gradient of mul is its own
    EXPECT_EQ(grad({mul(doubled(overwrote[0]), 5)}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(), tens);
    EXPECT_TRUE(overwrote[0]);
  }
  {  // the caller's
    const Tensor given = ones({2}, {kFloat64});
    EXPECT_EQ(grad({doubled(overwrote[0])}, {x}, {given})[0].to_vector<double>(), twos);
    EXPECT_FALSE(overwrote[0]);
    EXPECT_EQ(given.to_vector<double>(), (std::vector<double>{1, 1}));
  }
  {  // add passes one gradient to both
    const Tensor first = doubled(overwrote[0]), second = doubled(overwrote[1]);
    const Tensor five = mul(add(first, second), 5);
    EXPECT_EQ(grad({five}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(), (std::vector<double>{20, 20}));
    EXPECT_FALSE(overwrote[1]);  // it runs first, because it is the newest
    EXPECT_TRUE(overwrote[0]);
  }
  {  // a captured gradient
    const Tensor y = doubled(overwrote[0]), five = mul(y, 5);
    const std::vector<Tensor> gradients = grad({five}, {x, y}, {ones({2}, {kFloat64})});
    EXPECT_FALSE(overwrote[0]);
    EXPECT_EQ(gradients[0].to_vector<double>(), tens);
    EXPECT_EQ(gradients[1].to_vector<double>(), (std::vector<double>{5, 5}));
  }
  {  // an expanded one, and memory of the caller that a hook returns
    EXPECT_EQ(grad({mul(sum(doubled(overwrote[0])), 5)}, {x})[0].to_vector<double>(), tens);
    EXPECT_FALSE(overwrote[0]);
    double memory[] = {3, 4};
    const Tensor y = doubled(overwrote[0]);
    const HookHandle handle = y.register_hook([&](const Tensor&) { return from_blob(memory, {2}, {kFloat64}); });
    EXPECT_EQ(grad({mul(y, 5)}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(), (std::vector<double>{6, 8}));
    EXPECT_FALSE(overwrote[0]);
    EXPECT_EQ(memory[0], 3);
  }
  {  // one that a hook keeps
    const Tensor y = doubled(overwrote[0]);
    Tensor kept;
    const HookHandle handle = y.register_hook([&](const Tensor& gradient) { kept = gradient.view({2, 1}); });
    EXPECT_EQ(grad({mul(y, 5)}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(), tens);
    EXPECT_FALSE(overwrote[0]);
    EXPECT_EQ(kept.to_vector<double>(), (std::vector<double>{5, 5}));
  }
}

/// Doubles its input; adds its gradient to those of other nodes if it may.
struct AccumulatingNode final : autograd::Node {
  bool* accumulated = nullptr;
  TensorList backward(autograd::BackwardContext& context) override {
    const auto [out, accumulate] = context.grad_buffer(0, context.grad().shape(), kFloat64);
    *accumulated = accumulate;
    const Tensor gradient = mul(context.grad(), 2);
    accumulate ? out.add_(gradient) : out.copy_(gradient);
    return {out};
  }
};

TEST(Node, AddsToTheGradientsOfOtherNodes) {
  const Tensor x = ones({2}, {kFloat64}).requires_grad_(), y = mul(x, 1), z = mul(y.detach(), 2);
  bool accumulated = false;
  autograd::record<AccumulatingNode>("accumulating", z, y)->accumulated = &accumulated;
  EXPECT_EQ(grad({add(z, mul(y, 3))}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(),
            (std::vector<double>{5, 5}));
  EXPECT_TRUE(accumulated);
  EXPECT_EQ(grad({mul(z, 1)}, {x}, {ones({2}, {kFloat64})})[0].to_vector<double>(), (std::vector<double>{2, 2}));
  EXPECT_FALSE(accumulated);
}

TEST(Node, SavedOutputCreatesNoReferenceCycle) {
  bool destroyed = false;
  { identity(zeros({2}).requires_grad_(), &destroyed); }
  EXPECT_TRUE(destroyed);
}

TEST(Node, InPlaceChainCreatesNoReferenceCycle) {
  bool destroyed = false;
  {
    Tensor w = ones({2}).requires_grad_();
    Tensor buffer = identity(ones({2}).requires_grad_());
    Tensor y = mul(buffer, identity(w, &destroyed));  // saves buffer
    buffer.add_(y);                                   // buffer's history now contains the node that saved it
  }
  EXPECT_TRUE(destroyed);
}

TEST(Node, RecordReturnsNullWithoutGradInputs) {
  const Tensor x = zeros({2});
  Tensor y = zeros({2});
  EXPECT_EQ(autograd::record<IdentityNode>("identity", y, x), nullptr);
  EXPECT_EQ(autograd::record<IdentityNode>("identity", y, Tensor()), nullptr);
  EXPECT_FALSE(y.requires_grad());
}

TEST(Node, BackwardHandlesGraphRecordedByTwoThreads) {
  Tensor x = ones({2}, {kFloat64}).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 10; ++i) y = identity(y);
  Tensor z;
  std::thread other([&] { z = mul(identity(y), Scalar(3)); });  // creation numbers of a new thread start at 1
  other.join();
  z.backward(ones({2}, {kFloat64}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Node, BackwardReleasesSavedTensors) {
  Tensor x = ones({2}, {kFloat64}).requires_grad_();
  Tensor y = exp(x);
  const Tensor alias = y.detach();
  y.backward(ones({2}, {kFloat64}));
  y = {};
  EXPECT_EQ(alias.storage()->use_count(), 1u);
}

}}  // namespace tandem
