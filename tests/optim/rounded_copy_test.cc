// The copies of float32 parameters that autocast uses on GPUs: they always equal the rounded parameters.
#include <tandem/autograd/rounded_copy.h>

#include <tandem/nn/layers.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/muon.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/optim/optimizers.h>

namespace tandem::testing { namespace {

const Device kGpu("cuda:0");

Tensor random_parameter(const Shape& shape, uint64_t seed = 1) {
  Generator generator(seed);
  return randn(shape, {kFloat32, kGpu}, &generator).requires_grad_();
}

Tensor copy_of(const Tensor& parameter) { return autograd::leaf(parameter).rounded.existing(); }

/// The operand that autocast passes to a kernel.
Tensor cast(const Tensor& parameter, DType dtype = kBFloat16) {
  const Autocast autocast(dtype);
  Tensor operand = parameter;
  cast_for(CastPolicy::kLowPrecision, {&operand});
  return operand.detach();
}

bool equals_rounded(const Tensor& copy, const Tensor& parameter) {
  return primitives::bytes_equal(copy, to(parameter.detach(), copy.dtype()));
}

TEST(RoundedCopy, IsMadeOnce) {
  const Tensor parameter = random_parameter({7, 5});
  const Tensor first = cast(parameter);
  EXPECT_TRUE(equals_rounded(first, parameter));
  EXPECT_EQ(cast(parameter).data_ptr(), first.data_ptr());
  const NoGradGuard no_grad;
  EXPECT_EQ(cast(parameter).data_ptr(), first.data_ptr());
}

TEST(RoundedCopy, OnlyFloat32LeavesOnGpusHaveCopies) {
  Tensor frozen = random_parameter({3});
  frozen.requires_grad_(false);
  const Tensor weight = random_parameter({3}), result = weight * 2;
  const Tensor on_cpu = ones({3}).requires_grad_();
  for (const Tensor& tensor : {frozen, result, on_cpu}) {
    EXPECT_FALSE(autograd::is_copied_by_autocast(tensor));
    EXPECT_NE(cast(tensor).data_ptr(), cast(tensor).data_ptr());
  }
  EXPECT_TRUE(autograd::is_copied_by_autocast(weight));
}

TEST(RoundedCopy, ChangesOfTheParameterMakeItStale) {
  Tensor parameter = random_parameter({7, 5});
  const Tensor first = cast(parameter);
  const NoGradGuard no_grad;
  parameter.mul_(-1.5);
  EXPECT_TRUE(equals_rounded(cast(parameter), parameter));
  EXPECT_EQ(cast(parameter).data_ptr(), first.data_ptr());
  parameter.copy_(random_parameter({7, 5}, 2));
  EXPECT_TRUE(equals_rounded(cast(parameter), parameter));
  parameter.view({35}).fill_(0.3);  // by a view
  EXPECT_TRUE(equals_rounded(cast(parameter), parameter));
}

TEST(RoundedCopy, FollowsTheDtypeOfAutocast) {
  const Tensor parameter = random_parameter({9});
  for (const DType dtype : {kBFloat16, kFloat16, kBFloat16}) {
    EXPECT_EQ(cast(parameter, dtype).dtype(), dtype);
    EXPECT_TRUE(equals_rounded(cast(parameter, dtype), parameter));
  }
}

TEST(RoundedCopy, IsRemovedWhenTheModelMoves) {
  nn::Linear layer(5, 3);
  layer.to(kGpu);
  const Tensor weight = layer.parameters()[0];
  cast(weight);
  layer.to(Device());
  layer.to(kGpu);
  EXPECT_FALSE(copy_of(weight).defined());
  EXPECT_TRUE(equals_rounded(cast(weight), weight));
}

// The emulation reports a read that is not ordered after the write.
TEST(RoundedCopy, OtherStreamsWaitForTheCast) {
  const Tensor parameter = random_parameter({9});
  cuda::synchronize(kGpu);
  const Tensor first = cast(parameter);
  const cuda::StreamGuard guard(cuda::side_stream(kGpu, 0));
  const Tensor second = cast(parameter);
  EXPECT_EQ(second.data_ptr(), first.data_ptr());
  EXPECT_TRUE(equals_rounded(second, parameter));
  cuda::synchronize(kGpu);
}

TEST(RoundedCopy, GradientsMatchACast) {
  const Tensor x = random_parameter({1, 2, 4, 4}, 3).detach();
  const Tensor filters = random_parameter({3, 2, 3, 3}), same = filters.detach().clone().requires_grad_();
  Tensor result;
  {
    const Autocast autocast(kBFloat16);
    cast(filters);
    result = conv2d(x, filters, Tensor(), {});
  }
  const Tensor expected = conv2d(to(x, kBFloat16), to(same, kBFloat16), Tensor(), {});
  EXPECT_TRUE(primitives::bytes_equal(result.detach(), expected.detach()));
  sum(result).backward();
  sum(expected).backward();
  EXPECT_TRUE(primitives::bytes_equal(filters.grad(), same.grad()));
}

// A forward that has used the copy cannot be differentiated after a step, as without autocast.
TEST(RoundedCopy, BackwardAfterAChangeThrows) {
  Tensor weight = random_parameter({3, 5});
  const Tensor x = random_parameter({2, 5}, 2);
  Tensor y;
  {
    const Autocast autocast(kBFloat16);
    y = linear(x, weight);
  }
  {
    const NoGradGuard no_grad;
    weight.mul_(2);
  }
  cast(weight);
  EXPECT_NE(error_text<StateError>([&] { sum(y).backward(); }).find("autocast"), std::string::npos);
}

template <class Cases>
struct EveryOptimizerCopies : ::testing::Test {};
TYPED_TEST_SUITE(EveryOptimizerCopies, AllOptimizers, OptimizerName);

// Steps with a copy change the same bits of the parameter and of the state as without.
TYPED_TEST(EveryOptimizerCopies, AreWrittenByTheStep) {
  for (const auto& options : TypeParam::options()) {
    for (const DType dtype : {kBFloat16, kFloat16}) {
      Tensor with = random_parameter({300}), bias = random_parameter({9}, 2);
      Tensor without = with.detach().clone().requires_grad_();
      typename TypeParam::Optimizer optimizer({with, bias}, options), plain({without}, options);
      const Tensor copy = cast(with, dtype);
      for (int step = 0; step < 3; ++step) {
        Generator generator(static_cast<uint64_t>(step));
        const Tensor gradient = randn({300}, {kFloat32, kGpu}, &generator);
        for (const Tensor& parameter : {with, without}) set_gradient(parameter, gradient);
        set_gradient(bias, ones({9}, {kFloat32, kGpu}));
        optimizer.step();
        plain.step();
        EXPECT_TRUE(equals_rounded(copy, with)) << step;  // written without a cast
        EXPECT_TRUE(primitives::bytes_equal(with.detach(), without.detach()));
        EXPECT_TRUE(equals_rounded(cast(with, dtype), with));
        EXPECT_FALSE(copy_of(bias).defined());
      }
    }
  }
}

TEST(RoundedCopy, OptimizersThatDoNotWriteItMakeItStale) {
  Tensor parameter = random_parameter({6, 4});
  optim::Muon optimizer({parameter}, {.lr = 0.1});
  cast(parameter);
  set_gradient(parameter, random_parameter({6, 4}, 2).detach());
  optimizer.step();
  EXPECT_TRUE(equals_rounded(cast(parameter), parameter));
}

// A step writes the copies of one dtype; the others become stale.
TEST(RoundedCopy, TwoDtypesHaveSeparateCopies) {
  const Tensor a = random_parameter({8}), b = random_parameter({8}, 2);
  cast(a, kFloat16);
  cast(b, kBFloat16);
  optim::Adam optimizer({a, b}, {.lr = 0.1});
  for (const Tensor& parameter : {a, b}) set_gradient(parameter, ones({8}, {kFloat32, kGpu}));
  optimizer.step();
  EXPECT_TRUE(equals_rounded(cast(a, kFloat16), a));
  EXPECT_TRUE(equals_rounded(cast(b, kBFloat16), b));
}

// A copy that was stale before a step stays stale: a step of GradScaler may be skipped and write nothing.
TEST(RoundedCopy, SkippedStepsKeepAStaleCopyStale) {
  Tensor weight = random_parameter({4});
  Tensor slope = ones({4}, {kFloat32, kGpu});
  optim::Adam optimizer({weight}, {.lr = 0.1});
  optim::GradScaler scaler({.init_scale = 2});
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.backward(sum(weight * slope));
    scaler.step(optimizer);
    scaler.update();
  };
  cast(weight);
  step();
  cuda::Graph graph(kGpu);
  graph.capture(step);
  slope.fill_(std::numeric_limits<double>::infinity());
  {
    const NoGradGuard no_grad;
    weight.fill_(0.7);
  }
  graph.replay();
  EXPECT_TRUE(equals_rounded(cast(weight), weight));
}

/// Training steps of a linear layer under autocast.
struct AutocastTraining {
  Tensor weight = random_parameter({4, 5});
  Tensor x = empty({3, 5}, {kFloat32, kGpu});
  Tensor loss;
  optim::AdamW optimizer{{weight}, {.lr = 0.1}};

  void prepare(int step) {
    Generator generator(static_cast<uint64_t>(10 + step));
    x.copy_(randn({3, 5}, {kFloat32, kGpu}, &generator));
    if (step == 4) {  // as load_state_dict
      const NoGradGuard no_grad;
      weight.copy_(random_parameter({4, 5}, 7));
    }
  }
  void step() {
    optimizer.zero_grad();
    const Autocast autocast(kBFloat16);
    const Tensor y = linear(x, weight);
    loss = sum(y * y);
    loss.backward();
    optimizer.step();
  }
};

// Also if the parameter is changed between two replays, and if there is no copy at capture.
TEST(RoundedCopy, ReplaysAreSteps) {
  for (const bool has_copy : {true, false}) {
    AutocastTraining eager, replayed;
    cuda::Graph graph(kGpu);
    for (int i = 0; i < 7; ++i) {
      eager.prepare(i);
      eager.step();
      replayed.prepare(i);
      if (i == 0) {
        replayed.step();
        if (!has_copy) autograd::leaf(replayed.weight).rounded.remove();
      } else if (i == 1) {
        graph.capture([&] { replayed.step(); });
      } else {
        graph.replay();
      }
      EXPECT_TRUE(primitives::bytes_equal(eager.weight.detach(), replayed.weight.detach())) << i;
      EXPECT_TRUE(primitives::bytes_equal(eager.loss.detach(), replayed.loss.detach())) << i;
      if (has_copy) {
        EXPECT_TRUE(equals_rounded(copy_of(replayed.weight), replayed.weight)) << i;
      }
    }
  }
}

TEST(RoundedCopy, IsStaleAfterAFailedCapture) {
  AutocastTraining training;
  training.prepare(0);
  training.step();
  cuda::Graph graph(kGpu);
  EXPECT_THROW(graph.capture([&] {
    training.step();
    throw std::runtime_error("stop");
  }),
               std::runtime_error);
  EXPECT_TRUE(equals_rounded(cast(training.weight), training.weight));
}

TEST(RoundedCopy, MovingTheParameterEndsTheGraph) {
  nn::Linear layer(5, 3);
  layer.to(kGpu);
  const Tensor x = ones({2, 5}, {kFloat32, kGpu});
  Tensor y;
  const auto forward = [&] {
    const Autocast autocast(kBFloat16);
    y = layer(x);
  };
  forward();
  cuda::Graph graph(kGpu);
  graph.capture(forward);
  layer.to(Device());
  layer.to(kGpu);
  EXPECT_ERROR(StateError, graph.replay(),
               "Graph: parameter 'weight' was moved, or cast to another dtype, after the capture; capture a new Graph");
}

}}  // namespace tandem::testing
