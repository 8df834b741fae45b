#include <tandem/autograd/node.h>

#include <gtest/gtest.h>

#include <thread>

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
