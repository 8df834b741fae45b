// cuda::Graph: work that cannot be captured, and replays that are rejected because something changed after the capture.
#include <tandem/tensor/cuda_graph.h>

#include <tandem/nn/layers.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/optim/captured_training.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(Graph, UnsupportedOperationsInCaptureAreRejected) {
  const Tensor x = full({4}, 2, {kFloat32, kGpu}), y = full({4}, 1, {kFloat32, kGpu});
  const auto rejected = [&](const std::function<void()>& f) {
    cuda::Graph graph(kGpu);
    const std::string text = error_text<StateError>([&] {
      graph.capture([&] {
        y.add_(x);
        f();
      });
    });
    graph.capture([&] { y.add_(x); });  // the same object; the GPU has executed nothing of the failed capture
    return text;
  };
  const std::string copy =
      "Graph: a copy between the CPU and a GPU (item, to, printing) cannot be captured; do it before or after the "
      "capture";
  EXPECT_EQ(rejected([&] { static_cast<void>(y.sum().item()); }), copy);
  EXPECT_EQ(rejected([&] { static_cast<void>(y.to(Device())); }), copy);
  EXPECT_EQ(rejected([&] { static_cast<void>(ones({4}).to(kGpu)); }), copy);
  EXPECT_EQ(rejected([&] { cuda::synchronize(kGpu); }),
            "Graph: waiting for a stream (item, printing, synchronize) cannot be captured; do it before or after the "
            "capture");
  EXPECT_EQ(rejected([&] { cuda::Event(kGpu).record(cuda::current_stream(kGpu)); }),
            "Graph: an event cannot be captured; do it before or after the capture");
  EXPECT_EQ(rejected([&] {
              const cuda::StreamGuard guard{cuda::Stream(kGpu)};
              y.add_(x);
            }),
            "Graph: work on another stream cannot be captured; remove the StreamGuard");
  cuda::Graph other(kGpu);
  EXPECT_EQ(rejected([&] { other.capture([] {}); }),
            "Graph: another graph cannot be captured; do it before or after the capture");
  other.capture([] {});
  EXPECT_EQ(rejected([&] { other.replay(); }), "Graph: a replay cannot be captured; do it before or after the capture");
  EXPECT_ERROR(StateError, other.capture([] {}), "Graph: capture was already called; create another Graph");
  EXPECT_ERROR(StateError, cuda::Graph(kGpu).replay(), "Graph: replay without a successful capture");
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{17, 17, 17, 17}));  // eight successful captures
}

TEST(TwoGpus, CaptureRejectsUseOfOtherGpu) {
  cuda::Graph graph(kGpu);
  EXPECT_ERROR(StateError, graph.capture([] {
    static_cast<void>(zeros({3}, {kFloat32, Device("cuda:1")}));
  }),
               "Graph: cuda:1 cannot be used while a graph of cuda:0 is captured");
}

TEST(Graph, CaptureOfFirstOptimizerStepIsRejected) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  w.sum().backward();
  optim::AdamW adamw({w});
  optim::SGD momentum({w}, {.lr = 0.1, .momentum = 0.9});
  optim::SGD plain({w}, {.lr = 0.5});
  cuda::Graph graph(kGpu);
  EXPECT_ERROR(StateError, graph.capture([&] { adamw.step(); }),
               "AdamW: parameter 0: its first step cannot be captured; take one step before the capture");
  EXPECT_ERROR(StateError, graph.capture([&] { momentum.step(); }),
               "SGD: parameter 0: its first step cannot be captured; take one step before the capture");
  graph.capture([&] { plain.step(); });  // has no state
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1.5, 1.5, 1.5}));
}

TEST(Graph, OptionsRequiringOtherKernelsAreRejected) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  w.sum().backward();
  optim::SGD sgd({w}, {.lr = 0.5});
  cuda::Graph graph(kGpu);
  graph.capture([&] { sgd.step(); });
  sgd.set_options(0, {.lr = 0.25});
  graph.replay();
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1.25, 1.25, 1.25}));
  sgd.set_options(0, {.lr = 0.25, .weight_decay = 0.1});
  EXPECT_ERROR(
      StateError, graph.replay(),
      "SGD: parameter 0: the parameter, its gradient, state or options changed after the capture; capture a new graph");
  EXPECT_ERROR(StateError, graph.replay(),
               "Graph: an earlier replay threw after it had changed per-step values; capture a new Graph");
}

// The graph's kernels use memory that the optimizer no longer uses: a replay would update tensors that are not read.
TEST(Graph, ReplayWithChangedStateOrGradientsIsRejected) {
  const std::function<void(Training&)> changes[] = {
      [](Training& t) { t.optimizer->load_state_dict(t.optimizer->state_dict()); },
      [](Training& t) {  // a gradient of another backward
        t.optimizer->zero_grad();
        cross_entropy(t.forward(t) * 2, t.labels).backward();
        t.parameters[0].zero_grad();
      },
      [](Training& t) { t.optimizer->zero_grad(); },
      [](Training& t) {  // a step that skips one parameter
        t.parameters[1].zero_grad();
        t.optimizer->step();
        autograd::leaf(t.parameters[1]).mark_filled();
      }};
  for (const MakeOptimizer make_optimizer : {&two_groups, &with_momentum}) {
    for (size_t i = 0; i < std::size(changes); ++i) {
      if (i == 3 && make_optimizer == &with_momentum) continue;  // SGD counts no steps
      Training training = perceptron();
      training.optimizer = make_optimizer(training);
      training.prepare(0);
      training.step();
      cuda::Graph graph(kGpu);
      graph.capture([&] { training.optimizer->step(); });
      graph.replay();
      changes[i](training);
      EXPECT_NE(error_text<StateError>([&] { graph.replay(); }).find("changed after the capture"), std::string::npos)
          << i;
    }
  }
}

TEST(Graph, ReplayWithReplacedGradientBufferIsRejected) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  cuda::Graph graph(kGpu);
  graph.capture([&] { w.sum().backward(); });
  autograd::leaf(w).set_slot(zeros({3}, {kFloat32, kGpu}));
  EXPECT_ERROR(StateError, graph.replay(),
               "Graph: the gradient of '' is filled and in different memory; at capture it was empty; call zero_grad "
               "as before the capture, or capture a new Graph");
  cuda::Graph adding(kGpu);
  adding.capture([&] { w.sum().backward(); });
  autograd::leaf(w).set_slot({});  // keeps the gradient in its own memory
  EXPECT_ERROR(StateError, adding.replay(),
               "Graph: the gradient of '' is filled and in different memory; at capture it was filled; call zero_grad "
               "as before the capture, or capture a new Graph");
}

TEST(Graph, ReplayAfterMovingModelIsRejected) {
  nn::Linear model(3, 2);
  model.to(kGpu);
  optim::SGD sgd(model.parameters(), {.lr = 0.5});
  const Tensor x = ones({4, 3}, {kFloat32, kGpu});
  cuda::Graph graph(kGpu);
  graph.capture([&] {
    sgd.zero_grad();
    model.forward(x).sum().backward();
    sgd.step();
  });
  graph.replay();
  sgd.zero_grad();
  model.to(Device());
  model.to(kGpu);
  EXPECT_NE(error_text<StateError>([&] { graph.replay(); }).find("changed after the capture"), std::string::npos);
}

// A captured backward overwrites or accumulates gradients; replays cannot change which.
TEST(Graph, ReplayWithDifferentGradientPresenceIsRejected) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  cuda::Graph overwriting(kGpu);
  overwriting.capture([&] { (w * w).sum().backward(); });
  EXPECT_ERROR(StateError, overwriting.replay(),
               "Graph: the gradient of '' is filled; at capture it was empty; call zero_grad as before the capture, or "
               "capture a new Graph");
  cuda::Graph adding(kGpu);
  adding.capture([&] { (w * w).sum().backward(); });
  w.zero_grad();
  EXPECT_ERROR(StateError, adding.replay(),
               "Graph: the gradient of '' is empty; at capture it was filled; call zero_grad as before the capture, or "
               "capture a new Graph");
}

TEST(Graph, FailedCaptureRestoresGradients) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  const auto fail = [&] {
    cuda::Graph graph(kGpu);
    EXPECT_NE(error_text<StateError>([&] {
                graph.capture([&] {
                  (w * w).sum().backward();
                  cuda::synchronize(kGpu);
                });
              }),
              "");
  };
  fail();
  EXPECT_FALSE(w.grad().defined());
  (w * w).sum().backward();
  fail();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{4, 4, 4}));
}

// Replays update the parameters of the capture.
TEST(Graph, ReplayWithChangedTrainedParametersIsRejected) {
  Tensor a = full({3}, 2, {kFloat32, kGpu}), b = full({3}, 2, {kFloat32, kGpu});
  a.requires_grad_();
  b.requires_grad_();
  optim::SGD sgd({a, b}, {.lr = 0.5});
  a.sum().backward();
  {
    cuda::Graph graph(kGpu);
    graph.capture([&] { sgd.step(); });
    graph.replay();
    b.sum().backward();
    EXPECT_ERROR(StateError, graph.replay(),
                 "SGD: parameter 1 has a gradient, but it had none during the capture; capture a new graph");
  }
  cuda::Graph graph(kGpu);
  graph.capture([&] { sgd.step(); });
  a.requires_grad_(false);
  a.zero_grad();
  EXPECT_ERROR(
      StateError, graph.replay(),
      "SGD: parameter 0: the parameter, its gradient, state or options changed after the capture; capture a new graph");
}

TEST(Graph, OutOfMemoryDuringCaptureIsRecoverable) {
  const Tensor x = ones({1000}, {kFloat32, kGpu});
  static_cast<void>(zeros({1 << 20}, {kFloat32, kGpu}));  // stays in the cache
  const int64_t reserved = memory_stats(kGpu).reserved;
  set_memory_limit(kGpu, reserved + (1 << 20));
  {
    cuda::Graph graph(kGpu);
    EXPECT_NE(error_text<OutOfMemory>([&] {
                graph.capture([&] { static_cast<void>(zeros({1 << 22}, {kFloat32, kGpu})); });
              }),
              "");
    EXPECT_GE(memory_stats(kGpu).reserved, reserved);  // nothing was returned to the driver during the capture
    graph.capture([&] { x.add_(1); });
  }
  set_memory_limit(kGpu, 0);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 2));
}

}}  // namespace tandem::testing
