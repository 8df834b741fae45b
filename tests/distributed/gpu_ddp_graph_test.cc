// Data-parallel training whose steps, with their collectives, are replays of a cuda::Graph: the same bits as eager
// steps, and the same errors.
//
// Each rank has its own GPU, except GpuGraphProcesses with two ranks, which may share one. tools/gpu_checks selects
// tests by these names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/distributed/launch.h>
#include <tandem/nn/sync_batch_norm.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/graph_training.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

/// Results of 8 steps. Captured: step 3 is the captured run, steps 4, 5 and 7 are replays.
std::vector<double> train(Variant variant, Device device, const std::shared_ptr<ProcessGroup>& group, bool captured) {
  Training training(variant, device, group);
  std::vector<double> result;
  cuda::Graph graph(device);
  Tensor loss, norm;  // of replays
  for (int step = 0; step < 8; ++step) {
    training.prepare(group->rank(), step);
    if (captured && step == 3) {
      graph.capture([&] { training.step(); });
      loss = training.loss;
      norm = training.norm;
    } else if (captured && step > 3 && step != 6) {
      graph.replay();
      training.loss = loss;
      training.norm = norm;
    } else {
      training.step();
    }
    training.append(result);
  }
  result.push_back(training.scaler.get_scale());
  result.push_back(static_cast<double>(training.optimizer.state_dict().get<int64_t>("state.0.step")));
  return result;
}

class GpuGraphWorldSizes : public ::testing::TestWithParam<std::tuple<int, Variant>> {};

TEST_P(GpuGraphWorldSizes, ReplaysMatchEagerSteps) {
  const auto [world, variant] = GetParam();
  run_threads(gpus(world), [kind = variant](Context& context) {
    const auto eager = train(kind, context.device(), context.group(), false);
    EXPECT_EQ(eager, train(kind, context.device(), context.group(), true));
    if (kind == Variant::kScaled && context.world_size() > 1) {
      EXPECT_EQ(eager.back(), 6);  // all ranks have skipped two steps
    }
  });
}

std::string name_of_training(const ::testing::TestParamInfo<std::tuple<int, Variant>>& info) {
  constexpr const char* kNames[] = {"Plain", "Clipped", "Accumulated", "Scaled"};
  return str("Of", std::get<0>(info.param), kNames[static_cast<int>(std::get<1>(info.param))]);
}

INSTANTIATE_TEST_SUITE_P(, GpuGraphWorldSizes,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(Variant::kPlain, Variant::kClipped, Variant::kAccumulated,
                                                              Variant::kScaled)),
                         name_of_training);

/// A graph for a backward within no_sync(), and one for the backward that averages, with the step.
TEST(GpuGraph, AccumulationWithTwoGraphsMatchesEagerSteps) {
  run_threads(gpus(2), [](Context& context) {
    const auto run = [&](bool captured) {
      Training training(Variant::kPlain, context.device(), context.group());
      cuda::Graph local(context.device()), averaging(context.device());
      std::vector<double> result;
      const auto accumulate = [&] {
        training.optimizer.zero_grad();
        const HookHandle no_sync = training.reducer.no_sync();
        training.net.loss(training.x[0], training.y[0]).backward();
      };
      const auto update = [&] {
        training.loss = training.net.loss(training.x[0], training.y[0]);
        training.loss.backward();
        training.optimizer.step();
      };
      for (int step = 0; step < 6; ++step) {
        training.prepare(context.rank(), 2 * step);
        captured&& step == 2 ? local.capture(accumulate) : captured&& step > 2 ? local.replay() : accumulate();
        training.prepare(context.rank(), 2 * step + 1);
        captured&& step == 2 ? averaging.capture(update) : captured&& step > 2 ? averaging.replay() : update();
        training.append(result);
      }
      return result;
    };
    const auto eager = run(false);
    EXPECT_EQ(eager, run(true));
  });
}

TEST(GpuGraph, PartiallyUsedParameterIsAveragedInReplays) {
  run_threads(gpus(2), [](Context& context) {
    const TensorOptions options{kFloat32, context.device()};
    Tensor a = ones({3}, options).requires_grad_(), b = ones({2}, options).requires_grad_(),
           c = ones({2}, options).requires_grad_();
    GradientReducer reducer({{"a", a}, {"b", b}, {"c", c}}, {}, context.group(), {.unused = UnusedParameters::kAllow});
    const Tensor factor = full({}, 1, options);
    const auto step = [&] {
      for (const Tensor& p : {a, b, c}) p.zero_grad();
      Tensor loss = mul(a, factor).sum();
      if (context.rank() == 1) loss = add(loss, mul(b, factor).sum());
      loss.backward();
    };
    step();
    cuda::Graph graph(context.device());
    graph.capture(step);
    for (const float value : {2.0f, 6.0f}) {
      factor.copy_(full({}, value, options));
      for (const Tensor& p : {a, b, c}) p.zero_grad();
      graph.replay();
      EXPECT_EQ(a.grad().to_vector<float>(), Floats(3, value));
      EXPECT_EQ(b.grad().to_vector<float>(), Floats(2, value / 2));
      EXPECT_FALSE(c.grad().defined());
    }
  });
}

TEST(GpuGraph, SyncBatchNormMatchesEagerSteps) {
  run_threads(gpus(2), [](Context& context) {
    const auto run = [&](bool captured) {
      nn::SyncBatchNorm norm(3, context.group());
      norm.to(context.device());
      DistributedDataParallel<nn::SyncBatchNorm> ddp(norm, context.group());
      optim::Adam adam(norm.parameters(), {.lr = 0.1});
      const Tensor x = empty({2 + context.rank(), 3, 2, 2}, {kFloat32, context.device()});
      const auto step = [&] {
        adam.zero_grad();
        const Tensor y = ddp(x);
        mul(mul(y, y), x).sum().backward();
        adam.step();
      };
      cuda::Graph graph(context.device());
      std::vector<Floats> result;
      for (int i = 0; i < 6; ++i) {
        x.copy_(values(x.shape(), static_cast<uint64_t>(10 * i + context.rank())).to(context.device()));
        captured&& i == 2 ? graph.capture(step) : captured&& i > 2 ? graph.replay() : step();
        for (const Tensor& tensor : {norm.weight.detach(), norm.bias.grad(), norm.running_mean, norm.running_var})
          result.push_back(tensor.to_vector<float>());
      }
      return result;
    };
    const auto eager = run(false);
    EXPECT_EQ(eager, run(true));
  });
}

TEST(GpuGraph, UnusedParameterFailsTheCaptureOnAllRanks) {
  run_threads(gpus(2), [](Context& context) {
    Training training(Variant::kPlain, context.device(), context.group());
    training.prepare(context.rank(), 0);
    training.step();
    cuda::Graph graph(context.device());
    const auto step = [&] {
      training.optimizer.zero_grad();
      training.net.w1.sum().backward();
    };
    EXPECT_THAT(error_text<StateError>([&] { graph.capture(step); }), HasSubstr("backward did not reach"));
    training.step();  // the group is still usable
  });
}

TEST(GpuGraph, StopRequestIsAgreedInReplays) {
  run_threads(gpus(2), [](Context& context) {
    Training training(Variant::kPlain, context.device(), context.group());
    training.prepare(context.rank(), 0);
    training.step();
    cuda::Graph graph(context.device());
    graph.capture([&] { training.step(); });
    graph.replay();
    EXPECT_FALSE(context.should_stop());
    if (context.rank() == 1) context.request_stop();
    graph.replay();
    EXPECT_TRUE(context.should_stop());
  });
}

TEST(GpuGraph, OverlapReportExcludesReplays) {
  run_threads(gpus(2), [](Context& context) {
    Training training(Variant::kPlain, context.device(), context.group());
    training.prepare(context.rank(), 0);
    for (int i = 0; i < 3; ++i) training.step();
    cuda::Graph graph(context.device());
    graph.capture([&] { training.step(); });
    for (int i = 0; i < 3; ++i) graph.replay();
    for (int i = 0; i < 3; ++i) training.step();
    EXPECT_EQ(training.reducer.report().steps, 4);
  });
}

// --- collectives ---

TEST(GpuGraphOf4, ReplaysOfAllCollectivesMatchEagerCalls) {
  run_threads(gpus(4), [](Context& context) {
    ProcessGroup& group = *context.group();
    const auto filled = [&](const Shape& shape) { return zeros(shape, {kFloat32, context.device()}); };
    const Tensor input = filled({4, 3}), wide = filled({3, 8}), columns = wide.slice(1, 2, 5);
    const std::vector<Tensor> outputs = {filled({4, 3}), filled({3, 3}), filled({4, 4, 3}),
                                         filled({3}),    filled({4, 3}), filled({4, 3})};
    const auto run = [&] {
      outputs[0].copy_(input);
      const Work sum = group.all_reduce_async(outputs[0]);
      group.broadcast(columns, 2);  // not contiguous
      outputs[1].copy_(columns);
      group.all_gather(outputs[2], input);
      group.reduce_scatter(outputs[3], input, ReduceOp::kMax);
      group.all_to_all(outputs[4], input);
      sum.wait();
      outputs[5].copy_(mul(outputs[0], 2));
      group.all_reduce(outputs[5], ReduceOp::kAvg);
    };
    const auto results = [&](int round) {
      input.copy_(values({4, 3}, static_cast<uint64_t>(10 * round + group.rank())).to(context.device()));
      wide.copy_(values({3, 8}, static_cast<uint64_t>(500 + 10 * round + group.rank())).to(context.device()));
    };
    cuda::Graph graph(context.device());
    run();
    for (int round = 0; round < 3; ++round) {
      results(round);
      round == 0 ? graph.capture(run) : graph.replay();
      std::vector<Floats> replayed;
      for (const Tensor& output : outputs) replayed.push_back(output.to_vector<float>());
      results(round);
      run();
      for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(replayed[i], outputs[i].to_vector<float>()) << i;
    }
  });
}

// Graphs of two groups alternate with eager collectives of both; the host runs ahead of the GPU.
TEST(GpuGraph, GroupsOfOneGpuKeepTheirLaunchOrder) {
  run_threads(gpus(2), [](Context& context) {
    const auto first = context.group(), second = context.new_group(all_ranks(context));
    const Tensor x = full({4}, 1, {kFloat32, context.device()}), y = full({4}, 1, {kFloat32, context.device()});
    const auto both = [&] {
      const Work of_second = second->all_reduce_async(y, ReduceOp::kAvg);
      first->all_reduce(x);
      of_second.wait();
      Tensor(x).mul_(0.5);
    };
    both();
    cuda::Graph graph(context.device()), of_first(context.device());
    graph.capture(both);
    of_first.capture([&] { first->all_reduce(x, ReduceOp::kAvg); });
    const Tensor z = full({4}, 1, {kFloat32, context.device()});
    // In random order a thread of the other rank may run the stalled stream.
    const char* const order = std::getenv("TANDEM_EMULATED_ORDER");
    const bool in_any_order = order != nullptr && std::string(order).starts_with("random");
    for (int i = 0; i < 5; ++i) {
      std::optional<Stall> stall;
      if (i == 0 && !in_any_order) {  // without earlier work, for which the other rank may be needed
        cuda::synchronize(context.device());
        first->barrier();
        stall.emplace(cuda::current_stream(context.device()));
      }
      const Work concurrent = second->all_reduce_async(z, ReduceOp::kAvg);
      of_first.replay();  // ordered after it by the launches alone
      graph.replay();
      stall.reset();
      concurrent.wait();
      first->all_reduce_async(y, ReduceOp::kAvg).wait();
      of_first.replay();
      second->all_reduce_async(x, ReduceOp::kAvg).wait();
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 1));
    EXPECT_EQ(y.to_vector<float>(), Floats(4, 1));
  });
}

// Temporary tensors of captured collectives: their memory is not given to others.
TEST(GpuGraph, TensorsOfCapturedCollectivesAreKept) {
  run_threads(gpus(2), [](Context& context) {
    ProcessGroup& group = *context.group();
    const TensorOptions options{kFloat32, context.device()};
    std::optional<Tensor> summed = full({1000}, 1, options);
    group.all_reduce(zeros({1}, options));
    const Tensor out = zeros({1000}, options), rest = full({1000, 2}, 3, options);
    cuda::Graph graph(context.device());
    graph.capture([&] {
      group.all_reduce(*summed, ReduceOp::kAvg);
      out.copy_(*summed);
      group.all_reduce(rest.slice(1, 0, 1), ReduceOp::kAvg);  // by a row-major copy
    });
    summed.reset();
    const Tensor others = full({1000}, 7, options);  // would get the memory of `summed`
    for (int i = 0; i < 3; ++i) {
      out.fill_(0);
      graph.replay();
      EXPECT_EQ(out.to_vector<float>(), Floats(1000, 1));
      EXPECT_EQ(others.to_vector<float>(), Floats(1000, 7));
      EXPECT_EQ(rest.to_vector<float>(), Floats(2000, 3));
    }
  });
}

// --- captures that are rejected ---

TEST(GpuGraph, FirstCollectiveOfAGroupCannotBeCaptured) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1);
    cuda::Graph graph(x.device());
    EXPECT_THAT(error_text<StateError>([&] { graph.capture([&] { group.all_reduce(x); }); }),
                AllOf(StartsWith("Graph: all_reduce is the first collective of group '"),
                      HasSubstr("which cannot be captured; run the function once before the capture")));
    group.all_reduce(x);
    graph.capture([&] { group.all_reduce(x); });
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 4));
  });
}

TEST(GpuGraph, CollectiveThatIsNotWaitedForFailsTheCapture) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1);
    group.all_reduce(x);
    cuda::Graph graph(x.device());
    Work left;
    EXPECT_EQ(
        error_text<StateError>(
            [&] { graph.capture([&] { left = group.all_reduce_async(x, ReduceOp::kSum, {.name = "metric"}); }); }),
        "Graph: all_reduce #3 'metric' was captured, but wait() was not called during the capture; call it before "
        "the captured function returns");
    EXPECT_THAT(error_text<StateError>([&] { left.wait(); }), HasSubstr("wait() was not called during the capture"));
    group.all_reduce(x);
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 4));
  });
}

TEST(GpuGraph, CommunicationHooksCannotBeCaptured) {
  run_threads(gpus(2), [](Context& context) {
    const Net net(1, context.device());
    const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
    const GradientReducer reducer(net.named(), {}, context.group(), {.hooks = {bf16_compress()}});
    net.loss(x, y).backward();
    cuda::Graph graph(context.device());
    EXPECT_THAT(error_text<StateError>([&] { graph.capture([&] { net.loss(x, y).backward(); }); }),
                HasSubstr("Graph: communication hooks (bf16_compress) cannot be captured"));
    net.loss(x, y).backward();
  });
}

TEST(GpuGraph, ReplayWithinNoSyncIsRejected) {
  run_threads(gpus(2), [](Context& context) {
    std::optional<Training> training(std::in_place, Variant::kPlain, context.device(), context.group());
    training->prepare(context.rank(), 0);
    training->step();
    cuda::Graph graph(context.device());
    graph.capture([&] { training->step(); });
    {
      const HookHandle no_sync = training->reducer.no_sync();
      EXPECT_THAT(error_text<StateError>([&] { graph.replay(); }), HasSubstr("but no_sync() is active"));
    }
    graph.replay();
    training.reset();
    EXPECT_EQ(error_text<StateError>([&] { graph.replay(); }),
              "Graph: the DistributedDataParallel of a captured backward was destroyed; capture a new Graph");
  });
}

// --- lifetimes ---

TEST(GpuGraph, GroupAndGraphAreDestroyedInAnyOrder) {
  for (const bool graph_first : {true, false}) {
    run_threads(gpus(2), [&](Context& context) {
      auto group = context.new_group(all_ranks(context));
      const Tensor x = full({4}, 1, {kFloat32, context.device()});
      std::optional<cuda::Graph> graph(std::in_place, context.device());
      group->all_reduce(x, ReduceOp::kAvg);
      graph->capture([&] { group->all_reduce(x, ReduceOp::kAvg); });
      graph->replay();
      const auto begin = Clock::now();
      if (graph_first) graph.reset();
      group = nullptr;
      if (!graph_first) {
        EXPECT_THAT(error_text<StateError>([&] { graph->replay(); }),
                    HasSubstr("process group of its collectives was"));
        graph.reset();
      }
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));  // NCCL did not wait for a graph
      EXPECT_EQ(x.to_vector<float>(), Floats(4, 1));
    });
  }
}

// --- processes ---

TANDEM_RANK_MAIN(train_by_graphs) {
  const Device device = gpu_of_rank(context.rank());
  for (const Variant variant : {Variant::kClipped, Variant::kScaled}) {
    const auto eager = train(variant, device, context.group(), false);
    if (train(variant, device, context.group(), true) != eager) throw StateError("other results");
  }
}

class GpuGraphProcesses : public ::testing::TestWithParam<int> {};

TEST_P(GpuGraphProcesses, ReplaysMatchEagerSteps) { spawn(GetParam(), "train_by_graphs"); }

INSTANTIATE_TEST_SUITE_P(, GpuGraphProcesses, ::testing::Values(2, 4),
                         [](const auto& world) { return "Of" + std::to_string(world.param); });

}}  // namespace tandem::distributed
