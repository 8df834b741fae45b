// Gradients, errors and lifetimes of a DistributedDataParallel whose ranks divide state. On CPUs and GPUs.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/muon.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/sharded_training.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

using testing::error_text;
using testing::rank_devices;

/// The pieces of the gradients of all ranks, joined.
std::vector<double> joined_gradient(ProcessGroup& group, const Tensor& parameter) {
  const Tensor whole = zeros({parameter.numel()}, {kFloat64, parameter.device()});
  const autograd::LeafShard& shard = *autograd::leaf(parameter).shard();
  EXPECT_EQ(parameter.grad().shape(), Shape{shard.size()});
  primitives::copy(parameter.grad(), whole.slice(0, shard.begin, shard.end));
  group.all_reduce(whole);
  return whole.to_vector<double>();
}

TEST(ShardingGradient, IsThePieceOfThisRank) {
  run_threads(rank_devices(3), [](Context& context) {
    Training whole(context, {});
    whole.loss().backward();
    for (const Shard level : kLevels) {
      Training t(context, {.shard = level});
      {
        const HookHandle alone = t.reducer->no_sync();
        t.loss().backward();
      }
      EXPECT_EQ(t.net.w1.grad().shape(), t.net.w1.shape());  // of this rank alone
      t.net.w1.zero_grad();
      EXPECT_FALSE(t.net.w1.grad().defined());
      for (const Tensor& p : t.net.parameters()) p.zero_grad();
      t.loss().backward();
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(joined_gradient(*context.group(), t.net.parameters()[i]),
                  whole.net.parameters()[i].grad().reshape({-1}).to_vector<double>());
      }
      EXPECT_EQ(error_text<StateError>([&] { t.net.w1.set_grad(zeros(t.net.w1.shape())); }),
                "set_grad: the gradient of '" + autograd::leaf(t.net.w1).name +
                    "' is divided among ranks by a DistributedDataParallel; construct that without shard");
      t.net.w1.zero_grad();
      EXPECT_FALSE(t.net.w1.grad().defined());
    }
  });
}

TEST(ShardingGradient, WithinNoSyncIsOfThisRankAlsoAfterAnAverage) {
  run_threads(rank_devices(2), [](Context& context) {
    for (const Shard level : kLevels) {
      Training t(context, {.shard = level}), alone(context, {});
      const HookHandle no_averages = alone.reducer->no_sync();
      alone.loss().backward();
      t.loss().backward();
      const HookHandle no_sync = t.reducer->no_sync();
      t.loss().backward();
      EXPECT_EQ(t.net.w1.grad().to_vector<double>(), alone.net.w1.grad().to_vector<double>());
    }
  });
}

TEST(ShardingErrors, NameWhatIsWrong) {
  run_threads(rank_devices(2), [](Context& context) {
    const auto group = context.group();
    const auto text_of = [&](ReducerOptions options, const Net& net) {
      return error_text<Error>([&] { GradientReducer(net.named(), {}, group, std::move(options)); });
    };
    EXPECT_EQ(text_of({.hooks = {bf16_compress()}, .shard = Shard::kGradients}, Net(1, context.device())),
              "GradientReducer: hooks average whole gradients, which do not exist with Shard::kGradients; use "
              "Shard::kOptimizer");
    const Net viewed(1, context.device());
    const Tensor view = viewed.b1.detach();
    EXPECT_EQ(text_of({.shard = Shard::kOptimizer}, viewed),
              "DistributedDataParallel: another tensor uses the memory of 'fc1.bias', so the ranks cannot divide it; "
              "release views, states and results of earlier forwards, or construct without shard");
    const std::string levels =
        text_of({.shard = context.rank() == 0 ? Shard::kOptimizer : Shard::kGradients}, Net(1, context.device()));
    EXPECT_NE(levels.find("ranks have different values of the option shard"), std::string::npos) << levels;
    EXPECT_NE(levels.find("shard optimizer"), std::string::npos) << levels;
    EXPECT_NE(levels.find("shard gradients"), std::string::npos) << levels;

    Training t(context, {.shard = Shard::kGradients});
    optim::Muon muon({t.net.w1, t.net.w2}, {.lr = 0.1});
    t.loss().backward();
    EXPECT_EQ(
        error_text<StateError>([&] { muon.step(); }),
        "Muon: parameter 0 is updated as a whole, but a DistributedDataParallel divides it among ranks; construct "
        "that without shard, or use an elementwise optimizer");
    {
      const HookHandle alone = t.reducer->no_sync();
      t.loss().backward();
    }
    for (const auto& use : std::vector<std::function<void()>>{[&] { optim::clip_grad_norm_(t.net.parameters(), 1); },
                                                              [&] { sgd(t.net)->step(); }}) {
      EXPECT_NE(error_text<StateError>(use).find("is not averaged: it is of a backward within no_sync()"),
                std::string::npos);
    }
  });
}

TEST(ShardingErrors, StateOfWholeParametersDoesNotFit) {
  run_threads(rank_devices(2), [](Context& context) {
    const Net net(1, context.device());
    optim::SGD sgd(net.parameters(), kSgd);
    net.loss(inputs().to(context.device()), labels().to(context.device())).backward();
    sgd.step();
    GradientReducer reducer(net.named(), {}, context.group(), {.shard = Shard::kOptimizer});
    sgd.zero_grad();
    net.loss(inputs().to(context.device()), labels().to(context.device())).backward();
    EXPECT_NE(
        error_text<StateError>([&] { sgd.step(); }).find("create the optimizer after the DistributedDataParallel"),
        std::string::npos);
  });
}

/// The loss of a network that is one unit.
Tensor root_loss(const GradientReducer& reducer, const Net& net, const Tensor& x, const Tensor& y) {
  const auto units = reducer.units();
  const ObservedCall call(units.empty() ? nullptr : units[0].second);
  return net.loss(x, y);
}

TEST(ShardingLifetime, GradientBeforeConstructionCounts) {
  run_threads(rank_devices(2), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : kAllLevels) {
      const Net net(1, context.device());
      const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
      net.loss(x, y).backward();
      GradientReducer reducer(net.named(), {}, context.group(), {.shard = level});
      root_loss(reducer, net, x, y).backward();
      sgd(net)->step();
      const HookHandle whole = reducer.gathered();
      results.push_back(all_values(net));
    }
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
  });
}

TEST(ShardingLifetime, ModelTrainsAloneAndAgainAfterDestruction) {
  run_threads(rank_devices(2), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : kAllLevels) {
      const Net net(1, context.device());
      const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
      for (int round = 0; round < 2; ++round) {
        {
          HookHandle whole;  // at the end, so that parameters remain whole
          const auto reducer = std::make_unique<GradientReducer>(net.named(), NamedTensors{}, context.group(),
                                                                 ReducerOptions{.shard = level});
          root_loss(*reducer, net, x, y).backward();
          sgd(net)->step();
          whole = reducer->gathered();
          if (level == Shard::kNone) {
            for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
          }
        }
        EXPECT_FALSE(net.w1.grad().defined());
        net.loss(x, y).backward();  // equal on both ranks
        const auto optimizer = sgd(net);
        optimizer->step();
        optimizer->zero_grad();
      }
      results.push_back(all_values(net));
    }
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
  });
}

/// A loss whose backward throws before it reaches a parameter.
Tensor throwing(const Tensor& loss) {
  const Tensor result = mul(loss, Scalar(1));
  static thread_local HookHandle hook;
  hook = result.register_hook([](const Tensor&) -> Tensor { throw ValueError("thrown by a hook"); });
  return result;
}

TEST(ShardingLifetime, NextStepWorksAfterExceptions) {
  run_threads(rank_devices(2), [](Context& context) {
    Training whole(context, {});
    whole.optimizer = adamw(whole.net);
    for (int step = 0; step < 3; ++step) plain_step(whole);
    for (const Shard level : kLevels) {
      Training t(context, {.shard = level});
      t.optimizer = adamw(t.net);
      plain_step(t);
      t.optimizer->zero_grad();
      EXPECT_THROW(t.loss(t.x, t.y.slice(0, 0, 1)), Error);
      EXPECT_THROW(throwing(t.loss()).backward(), ValueError);
      t.loss().backward();
      EXPECT_THROW(optim::clip_grad_norm_(t.net.parameters(), -1), ValueError);
      t.optimizer->step();
      t.optimizer->zero_grad();
      t.loss().backward();
      EXPECT_THROW(throwing(t.loss()).backward(), ValueError);  // after an average
      t.optimizer->step();
      EXPECT_EQ(t.values(), whole.values());
    }
  });
}

TEST(ShardingLifetime, ExceptionAmongAveragesEndsTheGroupOnAllRanks) {
  for (const Shard level : kLevels) {
    const auto train = [&](Context& context) {
      Training t(context, {.shard = level});
      const Tensor h = relu(t.first(t.x));
      const HookHandle hook = h.register_hook([&](const Tensor& gradient) {
        if (context.rank() == 1) throw ValueError("thrown by a hook");  // the first bucket is being averaged
        return gradient;
      });
      const auto second = [&] { return cross_entropy(linear(h, t.net.w2, t.net.b2), t.y); };
      t.in("", [&] { return t.in("fc2", second); }).backward();
    };
    EXPECT_NE(error_text<Error>([&] { run_threads(rank_devices(2), train); }).find("thrown by a hook"),
              std::string::npos);
  }
}

}}  // namespace tandem::distributed
