#include <tandem/autograd/node.h>

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>

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
  Tensor x = ones({1}, {kFloat64}).set_requires_grad(), y = x.detach().clone(), sum;

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

TEST(Node, SavedOutputCreatesNoReferenceCycle) {
  bool destroyed = false;
  { identity(zeros({2}).set_requires_grad(), &destroyed); }
  EXPECT_TRUE(destroyed);
}

TEST(Node, InPlaceChainCreatesNoReferenceCycle) {
  bool destroyed = false;
  {
    Tensor w = ones({2}).set_requires_grad();
    Tensor buffer = identity(ones({2}).set_requires_grad());
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
  Tensor x = ones({2}, {kFloat64}).set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 10; ++i) y = identity(y);
  Tensor z;
  std::thread other([&] { z = mul(identity(y), Scalar(3)); });  // creation numbers of a new thread start at 1
  other.join();
  z.backward(ones({2}, {kFloat64}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Node, BackwardReleasesSavedTensors) {
  Tensor x = ones({2}, {kFloat64}).set_requires_grad();
  Tensor y = exp(x);
  const Tensor alias = y.detach();
  y.backward(ones({2}, {kFloat64}));
  y = {};
  EXPECT_EQ(alias.storage()->use_count(), 1u);
}

}}  // namespace tandem
