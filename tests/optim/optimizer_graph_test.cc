// Captured and replayed steps of every optimizer give the same parameters and states as the steps without a
// cuda::Graph.

#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/optim/optimizers.h>

namespace tandem::testing { namespace {

template <class Cases>
struct EveryOptimizerGraph : ::testing::Test {};
TYPED_TEST_SUITE(EveryOptimizerGraph, AllOptimizers, OptimizerName);

// Two steps, one that is captured and three replays, each with its own gradient and learning rate.
TYPED_TEST(EveryOptimizerGraph, ReplaysAreSteps) {
  const Device gpu("cuda:0");
  for (const auto& options : TypeParam::options()) {
    std::vector<State> states;
    std::vector<Tensor> parameters;
    for (const bool is_captured : {false, true}) {
      Tensor p = full({50}, 1.5, {kFloat32, gpu});
      p.requires_grad_();
      typename TypeParam::Optimizer optimizer({p}, options);
      cuda::Graph graph(gpu);
      for (int step = 0; step < 6; ++step) {
        set_gradient(p, full({50}, 0.3 - 0.2 * step, {kFloat32, gpu}));
        optimizer.set_lr(0.1 / (1 + step));
        if (!is_captured || step < 2) {
          optimizer.step();
        } else if (step == 2) {
          graph.capture([&] { optimizer.step(); });
        } else {
          graph.replay();
        }
      }
      states.push_back(optimizer.state_dict());
      parameters.push_back(p);
    }
    EXPECT_TRUE(primitives::bytes_equal(parameters[0].detach(), parameters[1].detach()));
    const auto plain = states[0].tensors(), replayed = states[1].tensors();
    ASSERT_EQ(plain.size(), replayed.size());
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_TRUE(primitives::bytes_equal(plain[i].second, replayed[i].second)) << plain[i].first;
    if (states[0].find("state.0.step") != nullptr) {
      EXPECT_EQ(states[0].get<int64_t>("state.0.step"), states[1].get<int64_t>("state.0.step"));
    }
  }
}

}}  // namespace tandem::testing
