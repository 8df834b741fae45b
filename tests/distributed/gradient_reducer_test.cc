#include <tandem/distributed/ddp/gradient_reducer.h>

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 7};
constexpr BucketSizes kTiny = {64, 64, 64};
constexpr BucketSizes kHuge = {1 << 30, 1 << 30, 1 << 30};

using tandem::testing::error_text;

/// This rank's items.
Tensor own(const Tensor& items, const Context& context) {
  const int64_t share = kItems / context.world_size();
  return items.slice(0, context.rank() * share, (context.rank() + 1) * share).contiguous();
}

class GradientReducerWorldSizes : public ::testing::TestWithParam<std::tuple<int, BucketSizes>> {};

TEST_P(GradientReducerWorldSizes, TrainingMatchesSingleProcessOnFullBatch) {
  const auto [world, sizes] = GetParam();
  const std::vector<double> expected = joined_batch(5);
  run_threads(world, [&](Context& context) {
    const std::vector<double> got = part_of_batch(context, 5, sizes);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  });
}

TEST_P(GradientReducerWorldSizes, NoSyncAccumulationMatchesFullBatch) {
  const auto [world, sizes] = GetParam();
  const Net reference(1);
  reference.loss(inputs(), labels()).backward();
  const std::vector<double> expected = reference.w1.grad().to_vector<double>();
  run_threads(world, [&](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = sizes});
    const int64_t share = kItems / world / 3;
    for (int64_t part = 0; part < 3; ++part) {
      const int64_t begin = (context.rank() * 3 + part) * share;
      const Tensor x = inputs().slice(0, begin, begin + share);
      const Tensor y = labels().slice(0, begin, begin + share).contiguous();
      HookHandle alone;
      if (part < 2) alone = reducer.no_sync();
      mul(net.loss(x, y), Scalar(1.0 / 3)).backward();
    }
    const std::vector<double> got = net.w1.grad().to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  });
}

INSTANTIATE_TEST_SUITE_P(, GradientReducerWorldSizes,
                         ::testing::Combine(::testing::ValuesIn(kWorlds),
                                            ::testing::Values(kTiny, BucketSizes{}, kHuge)));

TEST(GradientReducer, RanksEndWithBitwiseEqualGradients) {
  std::mutex mutex;
  std::vector<std::vector<double>> results;
  run_threads(3, [&](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    net.loss(inputs().slice(0, context.rank(), context.rank() + 20), labels().slice(0, 0, 20).contiguous()).backward();
    std::lock_guard lock(mutex);
    results.push_back(net.w1.grad().to_vector<double>());
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(GradientReducer, ParametersAndBuffersAreBroadcastFromRankZero) {
  run_threads(3, [](Context& context) {
    const Net net(1 + static_cast<uint64_t>(context.rank()));
    Tensor frozen = full({2}, context.rank() + 5, {kFloat64});
    Tensor buffer = full({3}, context.rank() + 1);
    NamedTensors parameters = net.named();
    parameters.emplace_back("frozen", frozen);
    GradientReducer reducer(parameters, {{"mean", buffer}}, context.group());
    EXPECT_EQ(all_values(net), all_values(Net(1)));
    EXPECT_EQ(frozen.to_vector<double>(), (std::vector<double>{5, 5}));
    EXPECT_EQ(buffer.to_vector<float>(), (std::vector<float>{1, 1, 1}));
    buffer.fill_(context.rank() + 20);
    reducer.broadcast_buffers();
    EXPECT_EQ(buffer.to_vector<float>(), (std::vector<float>{20, 20, 20}));
  });
}

TEST(GradientReducer, ParameterUnusedOnAllRanksHasNoGradient) {
  run_threads(2, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.unused = UnusedParameters::kAllow});
    const auto backward = [&] { linear(inputs(), net.w1).sum().backward(); };
    backward();
    EXPECT_TRUE(net.w1.grad().defined());
    EXPECT_FALSE(net.b1.grad().defined());
    EXPECT_FALSE(net.w2.grad().defined());
  });
}

TEST(GradientReducer, UnusedParameterFailsAllRanksByDefault) {
  run_threads(3, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group());
    EXPECT_EQ(error_text<StateError>([&] {
                Tensor h = linear(inputs(), net.w1, context.rank() == 1 ? net.b1 : Tensor());
                linear(h, net.w2, net.b2).sum().backward();
              }),
              "DistributedDataParallel: backward did not reach these parameters\n  'fc1.bias' on ranks 0 2\n  use them "
              "in the "
              "loss, or construct with unused = UnusedParameters::kAllow");
    EXPECT_NO_THROW(net.loss(inputs(), labels()).backward());  // the group stays usable
  });
}

TEST(GradientReducer, PartiallyUsedParameterIsAveragedOverAllRanks) {
  run_threads(4, [](Context& context) {
    Tensor a = ones({3}, {kFloat64}).requires_grad_();
    Tensor b = ones({2}, {kFloat64}).requires_grad_();
    GradientReducer reducer({{"a", a}, {"b", b}}, {}, context.group(), {.unused = UnusedParameters::kAllow});
    Tensor loss = a.sum();
    if (context.rank() == 2) loss = add(loss, mul(b, Scalar(8)).sum());
    loss.backward();
    EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{2, 2}));
  });
}

TEST(GradientReducer, UnusedParameterContributesNoStaleGradient) {
  run_threads(2, [](Context& context) {
    Tensor a = ones({3}, {kFloat64}).requires_grad_();
    Tensor b = ones({2}, {kFloat64}).requires_grad_();
    GradientReducer reducer({{"a", a}, {"b", b}}, {}, context.group(), {.unused = UnusedParameters::kAllow});
    add(a.sum(), b.sum()).backward();
    a.zero_grad();
    b.zero_grad();
    Tensor loss = a.sum();
    if (context.rank() == 0) loss = add(loss, mul(b, Scalar(6)).sum());
    loss.backward();
    EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{3, 3}));
  });
}

TEST(GradientReducer, TiedParameterIsReducedOnce) {
  run_threads(2, [](Context& context) {
    Tensor tied = full({2, 2}, 2, {kFloat64}).requires_grad_();
    GradientReducer reducer({{"tied", tied}}, {}, context.group(), {.buckets = kTiny});
    const Tensor x = full({1, 2}, context.rank() + 1, {kFloat64});
    linear(linear(x, tied), tied).sum().backward();
    // With r = rank + 1: d/dtied = r * (4 + 8) for every element; mean over r = 1, 2.
    EXPECT_EQ(tied.grad().to_vector<double>(), (std::vector<double>{12, 12, 12, 12}));
  });
}

TEST(GradientReducer, UnfrozenParametersAreAveraged) {
  const std::vector<double> expected = joined_batch(5);
  for (const bool only_unfrozen_first : {false, true}) {
    run_threads(3, [&](Context& context) {
      const Net net(1 + 10 * static_cast<uint64_t>(context.rank()));
      const auto freeze = [](std::vector<Tensor> parameters, bool on) {
        for (Tensor& p : parameters) p.requires_grad_(!on);
      };
      freeze({net.w1, net.b1}, true);
      const auto unused = only_unfrozen_first ? UnusedParameters::kAllow : UnusedParameters::kError;
      GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny, .unused = unused});
      EXPECT_EQ(reducer.plan().placements.size(), 2);
      optim::SGD sgd(net.parameters(), kSgd);
      const Tensor x = own(inputs(), context), y = own(labels(), context);
      freeze({net.w1, net.b1}, false);
      if (only_unfrozen_first) {  // no parameter with a bucket is reached
        freeze({net.w2, net.b2}, true);
        net.loss(x, y).backward();
        EXPECT_FALSE(net.w2.grad().defined());
        const Tensor smallest = net.w1.grad().clone();
        context.group()->all_reduce(smallest, ReduceOp::kMin);
        EXPECT_EQ(net.w1.grad().to_vector<double>(), smallest.to_vector<double>());
        freeze({net.w2, net.b2}, false);
      }
      for (int step = 0; step < 5; ++step) {
        sgd.zero_grad();
        net.loss(x, y).backward();
        sgd.step();
      }
      const std::vector<double> got = all_values(net);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
    });
  }
}

TEST(GradientReducer, TwoReducersAlternateOverOneNet) {
  run_threads(2, [](Context& context) {
    const Net net(1);
    const auto train = [&](bool first) {
      for (Tensor p : {net.w1, net.b1}) p.requires_grad_(first);
      for (Tensor p : {net.w2, net.b2}) p.requires_grad_(!first);
    };
    train(true);
    GradientReducer first(net.named(), {}, context.group());
    train(false);
    GradientReducer second(net.named(), {}, context.group());
    for (const bool trains_first : {true, false, true}) {
      train(trains_first);
      for (Tensor p : net.parameters()) p.zero_grad();
      net.loss(own(inputs(), context), own(labels(), context)).backward();
      const Tensor gradient = (trains_first ? net.w1 : net.w2).grad(), smallest = gradient.clone();
      context.group()->all_reduce(smallest, ReduceOp::kMin);
      EXPECT_EQ(gradient.to_vector<double>(), smallest.to_vector<double>());
      EXPECT_FALSE((trains_first ? net.w2 : net.w1).grad().defined());
    }
  });
}

/// One rank does something else than the others before the second backward.
TEST(GradientReducer, DifferencesBetweenRanksFailOnAllRanks) {
  const auto flip = [](const Net& net) { net.b1.detach().mul_(-1); };
  const auto freeze = [](Net& net) { net.w1.requires_grad_(false); };
  const auto unfreeze = [](Net& net) { net.b1.requires_grad_(true); };
  const std::string unused = "DistributedDataParallel: backward did not reach these parameters\n  ";
  const std::string use = "\n  use them in the loss, or construct with unused = UnusedParameters::kAllow";
  const std::string frozen = "DistributedDataParallel: these parameters are frozen on some ranks only\n  ";
  const std::string set = "\n  set requires_grad to the same value on all ranks";
  const std::string differ = "DistributedDataParallel: these parameters have other values than on rank 0\n  ";
  const std::string alike = "\n  change parameters and take optimizer steps on all ranks alike, and after backward";
  const struct {
    std::function<void(Net&)> on_rank_1, on_others;
    bool b1_is_frozen;
    std::string error, allowed;  ///< error texts, by default and with kAllow; empty: no error
  } cases[] = {
      {freeze,
       {},
       false,
       unused + "'fc1.weight' on rank 1, where it is frozen" + use,
       frozen + "'fc1.weight' on rank 1" + set},
      {unfreeze,
       {},
       true,
       unused + "'fc1.bias' on ranks 0 2, where it is frozen" + use,
       frozen + "'fc1.bias' on ranks 0 2" + set},
      {{},
       unfreeze,
       true,
       unused + "'fc1.bias' on rank 1, where it is frozen" + use,
       frozen + "'fc1.bias' on rank 1" + set},
      {flip, {}, false, differ + "'fc1.bias' on rank 1" + alike, differ + "'fc1.bias' on rank 1" + alike},
      {{}, flip, false, differ + "'fc1.bias' on rank 1" + alike, differ + "'fc1.bias' on rank 1" + alike},
      {flip, flip, false, "", ""},
      {[&](Net& net) { flip(net), flip(net); }, {}, false, "", ""},  // as an evaluation with averaged weights does
  };
  for (const auto& c : cases) {
    for (const auto mode : {UnusedParameters::kError, UnusedParameters::kAllow}) {
      run_threads(3, [&](Context& context) {
        Net net(1);
        net.b1.requires_grad_(!c.b1_is_frozen);
        GradientReducer reducer(net.named(), {}, context.group(), {.unused = mode});
        net.loss(inputs(), labels()).backward();
        if (const auto& change = context.rank() == 1 ? c.on_rank_1 : c.on_others) change(net);
        const std::string& expected = mode == UnusedParameters::kError ? c.error : c.allowed;
        for (int step = 0; step < 2; ++step) {  // the error stays
          std::string text;
          for (const Tensor& p : net.parameters()) p.zero_grad();
          try {
            net.loss(inputs(), labels()).backward();
          } catch (const StateError& error) {
            text = error.what();
          }
          EXPECT_EQ(text, expected);
        }
      });
    }
  }
}

TEST(GradientReducer, StepsWithinBackwardFailOnlyIfRanksDiffer) {
  for (const bool differs : {false, true}) {
    run_threads(2, [&](Context& context) {
      const Net net(1);
      const HookHandle step = net.w1.register_post_accumulate_grad_hook(
          [&](const Tensor& grad) { net.w1.detach().add_(grad); });  // the gradient of this rank
      GradientReducer reducer(net.named(), {}, context.group());
      const auto backward = [&] {
        net.loss(differs ? own(inputs(), context) : inputs(), differs ? own(labels(), context) : labels()).backward();
      };
      if (!differs) return backward();
      EXPECT_EQ(error_text<StateError>(backward),
                "DistributedDataParallel: these parameters have other values than on rank 0\n  'fc1.weight' on rank 1"
                "\n  change parameters and take optimizer steps on all ranks alike, and after backward");
    });
  }
}

TEST(GradientReducer, TwoReducersShareOneBackward) {
  run_threads(2, [](Context& context) {
    Tensor g = ones({2}, {kFloat64}).requires_grad_();
    Tensor d = ones({2}, {kFloat64}).requires_grad_();
    GradientReducer generator({{"g", g}}, {}, context.group());
    GradientReducer discriminator({{"d", d}}, {}, context.group());
    const double r = context.rank() + 1;
    const auto backward = [&] { mul(mul(g, d), Scalar(r)).sum().backward(); };
    backward();
    EXPECT_EQ(g.grad().to_vector<double>(), (std::vector<double>{1.5, 1.5}));
    EXPECT_EQ(d.grad().to_vector<double>(), (std::vector<double>{1.5, 1.5}));
    const HookHandle local = discriminator.no_sync();  // a generator's step
    backward();
    EXPECT_EQ(g.grad().to_vector<double>(), (std::vector<double>{3, 3}));
    EXPECT_EQ(d.grad().to_vector<double>(), (std::vector<double>{1.5 + r, 1.5 + r}));
  });
}

// Operations in a hook are recorded only under EnableGradGuard, so the inner loss is computed before.
TEST(GradientReducer, BackwardInsideHookOfAnotherReducerAveragesBoth) {
  run_threads(2, [](Context& context) {
    Tensor a = ones({2}, {kFloat64}).requires_grad_();
    Tensor b = ones({2}, {kFloat64}).requires_grad_();
    GradientReducer outer({{"a", a}}, {}, context.group());
    GradientReducer inner({{"b", b}}, {}, context.group());
    const double r = context.rank() + 1;
    for (int step = 0; step < 2; ++step) {
      a.zero_grad();
      b.zero_grad();
      const Tensor inner_loss = mul(b, Scalar(10 * r)).sum();
      const HookHandle hook = a.register_post_accumulate_grad_hook([&](const Tensor&) {
        inner_loss.backward();
        EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{15, 15}));
      });
      mul(a, Scalar(r)).sum().backward();
      EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{1.5, 1.5}));
      EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{15, 15}));
    }
  });
}

TEST(GradientReducer, BackwardInsideHookOfSameParameterIsRejected) {
  run_threads(2, [](Context& context) {
    Tensor w = ones({2}, {kFloat64}).requires_grad_();
    GradientReducer reducer({{"w", w}}, {}, context.group());
    const Tensor inner_loss = mul(w, Scalar(2)).sum();
    const HookHandle hook = w.register_post_accumulate_grad_hook([&](const Tensor&) { inner_loss.backward(); });
    EXPECT_EQ(error_text<StateError>([&] { w.sum().backward(); }),
              "backward: the leaf '' is part of another backward that is still running");
    EXPECT_THROW(context.group()->barrier(), CommError);
  });
}

TEST(GradientReducer, SubgroupErrorsShowGlobalRanks) {
  run_threads(3, [](Context& context) {
    if (context.rank() == 0) return;
    const auto group = context.new_group({1, 2});
    const Net net(1);
    {
      GradientReducer reducer(net.named(), {}, group);
      EXPECT_EQ(
          error_text<StateError>([&] {
            Tensor h = linear(inputs(), net.w1, context.rank() == 1 ? net.b1 : Tensor());
            linear(h, net.w2, net.b2).sum().backward();
          }),
          "DistributedDataParallel: backward did not reach these parameters\n  'fc1.bias' on rank 2\n  use them in "
          "the loss, or construct with unused = UnusedParameters::kAllow");
    }
    Tensor w = zeros({2, context.rank() == 2 ? 3 : 4}).requires_grad_();
    EXPECT_EQ(error_text<StateError>([&] {
                GradientReducer reducer({{"fc.weight", w}}, {}, group);
              }),
              "DistributedDataParallel: ranks have different models\n  rank 1: parameter 'fc.weight' float32 [2, 4]\n  "
              "rank 2: parameter 'fc.weight' float32 [2, 3]");
  });
}

TEST(GradientReducer, DifferentModelsFailConstructionOnAllRanks) {
  run_threads(3, [](Context& context) {
    Tensor w = zeros({2, context.rank() == 2 ? 3 : 4}).requires_grad_();
    EXPECT_EQ(error_text<StateError>([&] {
                GradientReducer reducer({{"fc.weight", w}}, {}, context.group());
              }),
              "DistributedDataParallel: ranks have different models\n  rank 0: parameter 'fc.weight' float32 [2, 4]\n  "
              "rank 2: "
              "parameter 'fc.weight' float32 [2, 3]");
  });
  run_threads(2, [](Context& context) {
    Tensor w = zeros({2}).requires_grad_();
    NamedTensors parameters = {{"a", w}};
    if (context.rank() == 0) parameters.emplace_back("b", zeros({1}));
    EXPECT_EQ(error_text<StateError>([&] { GradientReducer reducer(parameters, {}, context.group()); }),
              "DistributedDataParallel: ranks have different models\n  rank 0: parameter 'b' float32 [1], requires no "
              "grad\n  "
              "rank 1: (end of list)");
  });
}

TEST(GradientReducer, SecondReducerOverSameParameterIsRejected) {
  run_threads(1, [](Context& context) {
    Tensor w = zeros({2}).requires_grad_();
    const GradientReducer first({{"w", w}}, {}, context.group());
    EXPECT_EQ(
        error_text<StateError>([&] {
          GradientReducer second({{"w", w}}, {}, context.group());
        }),
        "GradientReducer: the gradient of 'w' is already stored in the buckets of another DistributedDataParallel");
  });
}

TEST(GradientReducer, ParametersRemainUsableAfterDestruction) {
  run_threads(2, [](Context& context) {
    Tensor w = ones({2}, {kFloat64}).requires_grad_();
    {
      GradientReducer reducer({{"w", w}}, {}, context.group());
      mul(w, Scalar(context.rank() + 1.0)).sum().backward();
    }
    EXPECT_EQ(w.grad().to_vector<double>(), (std::vector<double>{1.5, 1.5}));
    mul(w, Scalar(context.rank() + 1.0)).sum().backward();  // local only
    EXPECT_EQ(w.grad().to_vector<double>(), (std::vector<double>{1.5 + context.rank() + 1, 1.5 + context.rank() + 1}));
  });
}

TEST(GradientReducer, FirstBucketIsLaunchedBeforeBackwardEnds) {
  start_trace();
  run_threads(2, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    net.loss(inputs(), labels()).backward();
  });
  const std::vector<TraceEvent> events = stop_trace();
  for (int rank = 0; rank < 2; ++rank) {
    int64_t launched = 0, first_layer_begins = 0, backward_ends = 0;
    for (const TraceEvent& event : events) {
      if (event.rank != rank) continue;
      if (event.name.starts_with("launch bucket 0 of")) launched = event.begin_ns;
      if (event.category == "backward" && event.name == "linear")
        first_layer_begins = event.begin_ns;  // the last one: fc1
      if (event.category == "backward" && event.name == "backward") backward_ends = event.end_ns;
    }
    ASSERT_NE(launched, 0);
    EXPECT_LT(launched, first_layer_begins);
    EXPECT_LT(first_layer_begins, backward_ends);
  }
}

TEST(GradientReducer, BackwardFailureIsReportedOnOtherRanks) {
  std::string peer;
  run_threads(2, [&](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    HookHandle failing;
    if (context.rank() == 0) {
      failing =
          net.w1.register_post_accumulate_grad_hook([](const Tensor&) { throw ValueError("a hook of rank 0 failed"); });
      EXPECT_EQ(error_text<ValueError>([&] { net.loss(inputs(), labels()).backward(); }), "a hook of rank 0 failed");
    } else {
      peer = error_text<CommError>([&] { net.loss(inputs(), labels()).backward(); });
    }
  });
  EXPECT_TRUE(peer.starts_with("[rank 1 of 2] ")) << peer;
  EXPECT_TRUE(peer.ends_with(" failed\n  rank 0: backward failed before all gradients were exchanged")) << peer;
}

TEST(GradientReducer, ExceptionInTrainingLoopIsRethrownUnchanged) {
  enum Place { kBeforeConstruction, kInBackward, kBetweenSteps };
  for (const Place place : {kBeforeConstruction, kInBackward, kBetweenSteps}) {
    EXPECT_EQ(error_text<ValueError>([&] {
                run_threads(3, [&](Context& context) {
                  const bool mine = context.rank() == 1;
                  const Net net(1);
                  context.group()->barrier();
                  if (mine && place == kBeforeConstruction) throw ValueError("no luck");
                  GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
                  HookHandle failing;
                  for (int step = 0; step < 1000; ++step) {
                    if (mine && step == 3 && place == kInBackward) {
                      failing =
                          net.w1.register_post_accumulate_grad_hook([](const Tensor&) { throw ValueError("no luck"); });
                    }
                    for (Tensor p : net.parameters()) p.zero_grad();
                    net.loss(inputs(), labels()).backward();
                    if (mine && step == 3 && place == kBetweenSteps) throw ValueError("no luck");
                  }
                });
              }),
              "no luck");
  }
}

TEST(GradientReducer, RankLeavingLoopEarlyFailsOtherRanks) {
  run_threads(3, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kHuge});
    net.loss(inputs(), labels()).backward();
    if (context.rank() == 2) return;
    for (Tensor p : net.parameters()) p.zero_grad();
    const std::string text = error_text<CommError>([&] { net.loss(inputs(), labels()).backward(); });
    EXPECT_TRUE(text.starts_with(str("[rank ", context.rank(), " of 3] all_reduce #"))) << text;
    EXPECT_TRUE(text.ends_with(" failed\n  rank 2: left the job")) << text;
  });
}

TEST(GradientReducer, RequestStopEndsAllRanksAtSameStep) {
  run_threads(3, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group());
    int steps = 0;
    while (!context.should_stop()) {
      if (context.rank() == 2 && steps == 4) context.request_stop();
      for (Tensor p : net.parameters()) p.zero_grad();
      net.loss(inputs(), labels()).backward();
      ASSERT_LT(++steps, 20);
    }
    EXPECT_EQ(steps, 5);
  });
}

TEST(GradientReducer, NoSyncHandleMayOutliveReducer) {
  run_threads(1, [](Context& context) {
    const Net net(1);
    HookHandle alone;
    {
      GradientReducer reducer(net.named(), {}, context.group());
      alone = reducer.no_sync();
    }
    alone.remove();
  });
}

TEST(GradientReducer, OverlapReportTimesAddUp) {
  run_threads(2, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    for (int step = 0; step < 4; ++step) net.loss(inputs(), labels()).backward();
    const OverlapReport report = reducer.report();
    EXPECT_EQ(report.steps, 3);
    EXPECT_GT(report.comm_ms, 0);
    EXPECT_GE(report.exposed_ms, 0);
    EXPECT_GE(report.stolen_ms, 0);
    EXPECT_GT(report.local_ms, 0);
    EXPECT_NEAR(report.step_ms, report.local_ms + report.exposed_ms + report.stolen_ms, 1e-9);
  });
}

TEST(GradientReducer, LeftOutStepIsExcludedFromReport) {
  run_threads(2, [](Context& context) {
    const Net net(1);
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    for (int step = 0; step < 5; ++step) {
      if (step == 2) reducer.exclude_step();
      net.loss(inputs(), labels()).backward();
    }
    EXPECT_EQ(reducer.report().steps, 3);
  });
}

TEST(GradientReducer, ModelWithoutTrainableParametersIsRejected) {
  run_threads(1, [](Context& context) {
    EXPECT_EQ(error_text<ValueError>([&] {
                GradientReducer reducer({{"w", zeros({2})}}, {}, context.group());
              }),
              "GradientReducer: no parameter requires grad");
  });
}

}}  // namespace tandem::distributed
