// cuda::Graph: captured and replayed training steps give the same results as the steps without a graph.
#include <tandem/tensor/cuda_graph.h>

#include <tandem/autograd/checkpoint.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/schedules.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/optim/captured_training.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

Training convolutions() {
  Generator generator(2);
  Training made;
  for (const Shape& shape : {Shape{4, 2, 3, 3}, Shape{4}, Shape{4}, Shape{4}, Shape{5, 36}, Shape{5}}) {
    made.parameters.push_back(parameter(shape, generator));
  }
  made.buffers = {zeros({4}, {kFloat32, kGpu}), ones({4}, {kFloat32, kGpu})};
  made.input = empty({3, 2, 6, 6}, {kFloat32, kGpu});
  made.labels = empty({3}, {kInt64, kGpu});
  made.forward = [](const Training& t) {
    const std::vector<Tensor>& p = t.parameters;
    const Tensor convolved = conv2d(t.input, p[0], p[1], {.padding = 1});
    const Tensor normed = batch_norm_relu(convolved, t.buffers[0], t.buffers[1], p[2], p[3], true);
    return linear(max_pool2d(normed, 2).reshape({3, 36}), p[4], p[5]);
  };
  return made;
}

Training transformer() {
  Generator generator(3);
  Training made;
  for (const Shape& shape : {Shape{7, 16}, Shape{16}, Shape{16}, Shape{48, 16}, Shape{48}, Shape{5, 16}}) {
    made.parameters.push_back(parameter(shape, generator));
  }
  made.input = empty({2, 6}, {kInt64, kGpu});
  made.labels = empty({12}, {kInt64, kGpu});
  made.forward = [](const Training& t) {
    const std::vector<Tensor>& p = t.parameters;
    const Tensor x = dropout(embedding(t.input, p[0]) + embedding(arange(0, 6, 1, kGpu), p[0]), 0.2, true);
    const Tensor projected = linear(layer_norm(x, {16}, p[1], p[2]), p[3], p[4]);
    const Tensor heads = qkv_attention(projected, 2, {.dropout_p = 0.1, .is_causal = true});
    return linear((x + heads).reshape({12, 16}), p[5]);
  };
  return made;
}

/// The perceptron with its hidden layer in a checkpoint: backward draws the numbers of its dropout again.
Training checkpointed() {
  Training made = perceptron();
  made.forward = [](const Training& t) {
    const auto block = [input = t.input, p = t.parameters] {
      return dropout(linear_relu(input, p[0], p[1]), 0.4, true);
    };
    const Tensor hidden = [&] {
      const autograd::CheckpointScope scope([block] { static_cast<void>(block()); }, {t.input});
      return block();
    }();
    return linear(dropout(hidden, 0.2, true), t.parameters[2], t.parameters[3]);
  };
  return made;
}

/// The perceptron with clipped gradients.
Training clipped() {
  Training made = perceptron();
  made.max_norm = 0.4;
  return made;
}

struct Case {
  const char* name;
  Training (*make)();
};
const Case kCases[] = {{"perceptron", perceptron},
                       {"convolutions", convolutions},
                       {"transformer", transformer},
                       {"checkpointed", checkpointed},
                       {"clipped", clipped}};

void expect_equal(const std::vector<Tensor>& left, const std::vector<Tensor>& right, const std::string& what) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(primitives::bytes_equal(left[i], right[i])) << what << " " << i;
}

/// Steps of Adam with a loss scale and clipped gradients; the gradients of steps 3, 4 and 6 are infinite.
struct ScaledTraining {
  Tensor weight = ones({50}, {kFloat32, kGpu}).requires_grad_();
  Tensor slope = empty({50}, {kFloat32, kGpu});
  optim::Adam optimizer{{weight}, {.lr = 0.1}};
  optim::GradScaler scaler{{.growth_interval = 2}};

  void prepare(int step) {
    const double infinity = std::numeric_limits<double>::infinity();
    slope.copy_(full({50}, step == 3 || step == 4 || step == 6 ? infinity : 0.1 * step - 0.3, {kFloat32, kGpu}));
  }
  void step() {
    optimizer.zero_grad();
    scaler.backward(sum(weight * slope));
    scaler.unscale_(optimizer);
    optim::clip_grad_norm_({weight}, 0.5);
    scaler.step(optimizer);
    scaler.update();
  }
};

// The host learns late whether a replay skipped its step: at the next replay, or when it reads the scale.
TEST(Graph, ReplaysOfScaledStepsAreSteps) {
  for (const bool reads_scale : {false, true}) {
    ScaledTraining usual, replayed;
    cuda::Graph graph(kGpu);
    for (int i = 0; i < 9; ++i) {
      usual.prepare(i);
      usual.step();
      replayed.prepare(i);
      if (i < 1) {
        replayed.step();
      } else if (i == 1) {
        graph.capture([&] { replayed.step(); });
      } else {
        graph.replay();
      }
      if (reads_scale) {
        EXPECT_EQ(replayed.scaler.get_scale(), usual.scaler.get_scale()) << i;
      }
    }
    EXPECT_TRUE(primitives::bytes_equal(usual.weight.detach(), replayed.weight.detach()));
    EXPECT_EQ(usual.optimizer.state_dict().get<int64_t>("state.0.step"), 6);
    EXPECT_EQ(replayed.optimizer.state_dict().get<int64_t>("state.0.step"), 6);
    EXPECT_EQ(usual.scaler.get_scale(), 32768);  // doubled twice, halved three times
    EXPECT_EQ(replayed.scaler.get_scale(), usual.scaler.get_scale());
    EXPECT_EQ(replayed.scaler.state_dict().get<int64_t>("growth_tracker"),
              usual.scaler.state_dict().get<int64_t>("growth_tracker"));
    const auto moments = usual.optimizer.state_dict().tensors(), others = replayed.optimizer.state_dict().tensors();
    for (size_t i = 0; i < moments.size(); ++i)
      EXPECT_TRUE(primitives::bytes_equal(moments[i].second, others[i].second)) << moments[i].first;
  }
}

TEST(Graph, ScaledStepsAreCapturedAsAWhole) {
  ScaledTraining training;
  training.prepare(0);
  training.step();
  cuda::Graph graph(kGpu), other(kGpu), last(kGpu);
  training.scaler.unscale_(training.optimizer);
  EXPECT_ERROR(StateError, graph.capture([&] { training.scaler.step(training.optimizer); }),
               "GradScaler: unscale_ was called before the capture of a cuda::Graph; capture it too");
  training.scaler.step(training.optimizer);
  training.scaler.update();
  graph.capture([&] { training.step(); });
  EXPECT_ERROR(StateError, other.capture([&] { training.step(); }),
               "GradScaler: the scale after the last step of a cuda::Graph is not known; call get_scale() before the "
               "capture of another graph");
  training.scaler.get_scale();
  EXPECT_ERROR(StateError, other.capture([&] { training.step(); }),
               "Adam: the last step of a cuda::Graph may have been skipped; call state_dict() before the capture of "
               "another graph");
  training.optimizer.state_dict();
  other.capture([&] { training.step(); });
  optim::GradScaler collective({.all_reduce_found_inf = [](const Tensor&) {}});
  EXPECT_ERROR(StateError, last.capture([&] { collective.unscale_(training.optimizer); }),
               "GradScaler: all_reduce_found_inf cannot be captured in a cuda::Graph");
}

TEST(Graph, MemoryOfADestroyedGraphIsReturned) {
  const Tensor weight = ones({64, 64}, {kFloat32, kGpu});
  int64_t reserved = 0;
  for (int i = 0; i < 6; ++i) {
    cuda::Graph graph(kGpu);
    Tensor product;
    graph.capture([&] { product = linear(weight, weight); });
    EXPECT_EQ(product.to_vector<float>(), std::vector<float>(64 * 64, 64));
    if (i == 2) reserved = memory_stats(kGpu).reserved;
    if (i > 2) {
      EXPECT_EQ(memory_stats(kGpu).reserved, reserved) << i;
    }
  }
}

TEST(Graph, EachReplayClipsByItsOwnNorm) {
  Tensor weight = zeros({2}, {kFloat32, kGpu});
  weight.requires_grad_();
  const Tensor gradient = zeros({2}, weight.options());
  cuda::Graph graph(kGpu);
  Tensor norm;
  graph.capture([&] {
    weight.zero_grad();
    sum(weight * gradient).backward();
    norm = optim::clip_grad_norm_({weight}, 1);
  });
  for (const float scale : {0.125f, 2.0f, 0.25f, 4.0f}) {
    gradient.copy_(from_vector<float>({3 * scale, 4 * scale}, {2}).to(kGpu));
    graph.replay();
    EXPECT_FLOAT_EQ(static_cast<float>(norm.item<double>()), 5 * scale);
    const float factor = scale < 0.2f ? scale : 0.2f;
    const auto clipped = weight.grad().to_vector<float>();
    EXPECT_NEAR(clipped[0], 3 * factor, 1e-6);
    EXPECT_NEAR(clipped[1], 4 * factor, 1e-6);
  }
}

// Seven steps without a graph against two without, one captured and four replayed. Each has its own batch, learning
// rate and dropout.
TEST(Graph, ReplaysMatchEagerSteps) {
  for (const Case& one : kCases) {
    for (const MakeOptimizer make_optimizer : {&two_groups, &with_momentum}) {
      const auto run = [&](bool captured, Training& training, std::vector<double>& losses) {
        manual_seed(7);
        training = one.make();
        training.optimizer = make_optimizer(training);
        cuda::Graph graph(kGpu);
        for (int64_t i = 0; i < 7; ++i) {
          training.prepare(i);
          if (!captured || i < 2) {
            training.step();
          } else if (i == 2) {
            graph.capture([&] { training.step(); });
          } else {
            graph.replay();
          }
          losses.push_back(training.loss.item());
          if (training.max_norm > 0) losses.push_back(training.norm.item<double>());
        }
      };
      Training usual, replayed;
      std::vector<double> losses, losses_of_replays;
      run(false, usual, losses);
      const State generator = default_generator(kGpu).state_dict();
      run(true, replayed, losses_of_replays);
      EXPECT_EQ(losses, losses_of_replays) << one.name;
      expect_equal(usual.parameters, replayed.parameters, one.name);
      expect_equal(usual.buffers, replayed.buffers, one.name);
      for (size_t i = 0; i < usual.parameters.size(); ++i) {
        EXPECT_TRUE(primitives::bytes_equal(usual.parameters[i].grad(), replayed.parameters[i].grad()))
            << one.name << " " << i;
      }
      EXPECT_EQ(generator.get<int64_t>("offset"), default_generator(kGpu).state_dict().get<int64_t>("offset"))
          << one.name;
      const State kept = usual.optimizer->state_dict(), kept_of_replays = replayed.optimizer->state_dict();
      if (make_optimizer == &two_groups) {
        EXPECT_EQ(kept_of_replays.get<int64_t>("state.0.step"), 7);
        EXPECT_TRUE(primitives::bytes_equal(kept.get<Tensor>("state.0.exp_avg_sq"),
                                            kept_of_replays.get<Tensor>("state.0.exp_avg_sq")));
      }
    }
  }
}

// Replays and steps without the graph alternate.
TEST(Graph, EagerStepsAndReplaysCanAlternate) {
  const auto run = [](bool captured, Training& training) {
    manual_seed(7);
    training = perceptron();
    training.optimizer = two_groups(training);
    cuda::Graph graph(kGpu);
    for (int64_t i = 0; i < 8; ++i) {
      training.prepare(i);
      if (captured && i == 2) {
        graph.capture([&] { training.step(); });
      } else if (captured && i > 2 && i % 2 == 1) {
        graph.replay();
      } else {
        training.step();
      }
    }
  };
  Training usual, replayed;
  run(false, usual);
  run(true, replayed);
  expect_equal(usual.parameters, replayed.parameters, "parameter");
}

TEST(Graph, ReplaysContinueTheRandomStream) {
  const Tensor p = full({50}, 0.3, {kFloat32, kGpu}), weights = rand({4, 9}, {kFloat32, kGpu});
  const auto draw = [&](Generator* generator) {
    return std::vector<Tensor>{rand({37}, {kFloat32, kGpu}, generator),
                               randn({38}, {kFloat64, kGpu}, generator),
                               randint(-3, 90, {41}, {kInt64, kGpu}, generator),
                               bernoulli(p, generator),
                               multinomial(weights, 3, false, generator),
                               multinomial(weights, 12, true, generator),
                               dropout(p, 0.5, true, generator)};
  };
  Generator mine(5);
  for (Generator* const generator : {static_cast<Generator*>(nullptr), &mine}) {
    const auto seed = [&](uint64_t with) { generator != nullptr ? generator->manual_seed(with) : manual_seed(with); };
    std::vector<std::vector<Tensor>> expected;
    seed(3);
    for (int i = 0; i < 3; ++i) expected.push_back(draw(generator));
    seed(4);
    expected.push_back(draw(generator));

    seed(3);
    cuda::Graph graph(kGpu);
    std::vector<Tensor> drawn;
    graph.capture([&] { drawn = draw(generator); });
    expect_equal(drawn, expected[0], "captured");
    graph.replay();
    expect_equal(drawn, expected[1], "replayed");
    graph.replay();
    expect_equal(drawn, expected[2], "replayed again");
    seed(4);
    graph.replay();
    expect_equal(drawn, expected[3], "with another seed");
  }
}

TEST(Graph, CapturedLossScaleAppliesToEveryElement) {
  Tensor w = ones({3}, {kFloat32, kGpu});
  w.requires_grad_();
  const optim::GradScaler scaler({.init_scale = 8});
  cuda::Graph graph(kGpu);
  graph.capture([&] { scaler.backward(w * 2); });
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{16, 16, 16}));
}

TEST(Graph, ReplayUsesTheCurrentLossScale) {
  Tensor w = from_vector<float>({1, -2, 3}, {3}).to(kGpu);
  w.requires_grad_();
  optim::GradScaler scaler({.init_scale = 8, .growth_interval = 1});
  optim::SGD sgd({w}, {.lr = 0});
  cuda::Graph graph(kGpu);
  const auto backward = [&] {
    sgd.zero_grad();
    scaler.backward(w.sum());
  };
  graph.capture(backward);
  for (const float scale : {8.0f, 16.0f, 32.0f}) {
    EXPECT_EQ(scaler.get_scale(), scale);
    if (scale > 8) graph.replay();
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{scale, scale, scale}));
    EXPECT_TRUE(scaler.step(sgd));
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
    scaler.update();
  }
}

void set_values(const Tensor& leaf, double value) {
  const NoGradGuard no_grad;
  leaf.fill_(value);
}

TEST(Graph, ReplayWritesGradientsToTheirSlots) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  cuda::Graph graph(kGpu);
  graph.capture([&] {
    w.zero_grad();
    (w * w).sum().backward();
  });
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  set_values(w, 3);
  graph.replay();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{6, 6, 6}));
  set_values(w, 2);
  // A kernel that writes into the slot itself.
  Tensor weight = full({2, 3}, 1, {kFloat32, kGpu});
  weight.requires_grad_();
  linear(ones({4, 3}, {kFloat32, kGpu}), weight).sum().backward();
  cuda::Graph in_place(kGpu);
  in_place.capture([&] {
    weight.zero_grad();
    linear(ones({4, 3}, {kFloat32, kGpu}), weight).sum().backward();
  });
  autograd::leaf(weight).slot().fill_(77);
  weight.zero_grad();
  in_place.replay();
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(6, 4));

  w.zero_grad();
  (w * 5).sum().backward();  // a gradient in other memory
  graph.replay();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{4, 4, 4}));

  // Without zero_grad each replay adds.
  cuda::Graph adding(kGpu);
  adding.capture([&] { (w * 3).sum().backward(); });
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{7, 7, 7}));
  adding.replay();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{10, 10, 10}));
}

TEST(Graph, ReplayIncrementsTensorVersions) {
  Tensor w = full({3}, 2, {kFloat32, kGpu});
  w.requires_grad_();
  optim::SGD sgd({w}, {.lr = 0.5});
  const auto step = [&] {
    sgd.zero_grad();
    (w * w).sum().backward();
    sgd.step();
  };
  cuda::Graph graph(kGpu);
  graph.capture(step);
  const Tensor squares = (w * w).sum();
  graph.replay();
  EXPECT_NE(error_text<StateError>([&] { squares.backward(); }).find("step"), std::string::npos);

  const Tensor counter = zeros({3}, {kFloat32, kGpu});
  cuda::Graph counting(kGpu);
  counting.capture([&] { counter.add_(1); });
  const Tensor product = (w * counter).sum();
  counting.replay();
  EXPECT_NE(error_text<StateError>([&] { product.backward(); }).find("add_"), std::string::npos);
}

// The backward draws the mask again, after the graph was destroyed.
TEST(Graph, DropoutBackwardWorksAfterGraphIsDestroyed) {
  Tensor w = ones({50}, {kFloat32, kGpu});
  w.requires_grad_();
  Tensor dropped, sum;
  {
    cuda::Graph graph(kGpu);
    graph.capture([&] {
      dropped = dropout(w, 0.5, true);
      sum = dropped.sum();
    });
  }
  empty_cache(kGpu);
  sum.backward();
  EXPECT_TRUE(primitives::bytes_equal(w.grad(), dropped.detach()));
}

// Memory that replays use is not reused by other tensors, although no tensor owns it, and is freed with the graph.
TEST(Graph, GraphMemoryIsPrivateUntilDestruction) {
  empty_cache(kGpu);
  const MemoryStats before = memory_stats(kGpu);
  {
    const Tensor x = full({1000}, 1, {kFloat32, kGpu});
    Tensor out, inner = full({1000}, 2, {kFloat32, kGpu});
    cuda::Graph graph(kGpu);
    graph.capture([&] {
      out = ((x + inner) * 3) + inner;
      inner = Tensor();  // allocated before the capture, freed in it
    });
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(1000, 11));
    empty_cache(kGpu);
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i) others.push_back(full({1000}, -5, {kFloat32, kGpu}));
    graph.replay();
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(1000, 11));
    for (const Tensor& other : others) EXPECT_EQ(other.to_vector<float>(), std::vector<float>(1000, -5));
  }
  empty_cache(kGpu);
  EXPECT_EQ(memory_stats(kGpu).allocated, before.allocated);
  EXPECT_EQ(memory_stats(kGpu).reserved, before.reserved);
}

TEST(Graph, InPlaceTemporariesAreReusedDuringCapture) {
  constexpr int64_t kElements = 1 << 18;
  const Tensor x = ones({kElements}, {kFloat32, kGpu});
  cuda::Graph graph(kGpu);
  reset_peak_memory(kGpu);
  const int64_t before = memory_stats(kGpu).peak_allocated;
  graph.capture([&] {
    for (int i = 0; i < 10; ++i) (x * 2).add_(x);
  });
  EXPECT_LT(memory_stats(kGpu).peak_allocated - before, 3 * 4 * kElements);
}

TEST(Graph, ReplaysOnSeveralStreamsAreSerialized) {
  const Tensor x = zeros({3}, {kFloat32, kGpu});
  cuda::Graph graph(kGpu);
  graph.capture([&] { x.add_(1); });
  for (int i = 0; i < 5; ++i) {
    const cuda::StreamGuard guard{cuda::side_stream(kGpu, i)};
    graph.replay();
  }
  const cuda::StreamGuard guard{cuda::side_stream(kGpu, 4)};
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{6, 6, 6}));
}

// An index out of range in a replay is reported at the next synchronization, as without a graph.
TEST(Graph, DeviceErrorsOfReplaysAreThrownAtSynchronization) {
  const Tensor table = ones({4, 2}, {kFloat32, kGpu}), index = zeros({1}, {kInt64, kGpu});
  cuda::Graph graph(kGpu);
  graph.capture([&] { static_cast<void>(embedding(index, table)); });
  cuda::synchronize(kGpu);
  index.fill_(9);
  graph.replay();
  EXPECT_NE(error_text<IndexError>([] { cuda::synchronize(kGpu); }).find("9"), std::string::npos);
  index.fill_(1);
  graph.replay();
  cuda::synchronize(kGpu);
}

}}  // namespace tandem::testing
