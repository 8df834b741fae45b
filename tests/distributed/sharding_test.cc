// DistributedDataParallel whose ranks divide the optimizer's state and the gradients, on CPUs and GPUs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/muon.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::distributed { namespace {

using testing::error_text;
using testing::rank_devices;

constexpr Shard kLevels[] = {Shard::kOptimizer, Shard::kGradients};

/// One training of Net on the ranks of a group; all of its ranks make equal steps.
struct Training {
  Context& context;
  Net net;
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor x, y;

  Training(Context& ranks, ReducerOptions options, DType dtype = kFloat64,
           const std::function<void(Net&)>& prepare = nullptr)
      : context(ranks), net(1, ranks.device(), dtype) {
    if (prepare) prepare(net);
    const int64_t share = kItems / 9 / context.world_size(), begin = context.rank() * share;
    x = inputs().slice(0, begin, begin + share).to(context.device()).to(dtype);
    y = labels().slice(0, begin, begin + share).contiguous().to(context.device());
    options.buckets = {64, 256, 64};  // several buckets
    reducer = std::make_unique<GradientReducer>(net.named(), NamedTensors{}, context.group(), std::move(options));
  }
  Tensor loss() const { return net.loss(x, y); }
};

/// A way to train: what is constructed, and one step.
struct Case {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Net&)> optimizer;
  std::function<void(Training&, int step)> step;
  DType dtype = kFloat64;
  UnusedParameters unused = UnusedParameters::kError;
  bool exact = true;                            ///< equal bytes; else equal within 1e-12
  std::function<void(Net&)> prepare = nullptr;  ///< before the construction of the reducer
};

void PrintTo(const Case& how, std::ostream* out) { *out << how.name; }

std::unique_ptr<optim::Optimizer> sgd(const Net& net) { return std::make_unique<optim::SGD>(net.parameters(), kSgd); }
std::unique_ptr<optim::Optimizer> adamw(const Net& net) {
  return std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
}

void plain(Training& t, int /*step*/) {
  t.optimizer->zero_grad();
  t.loss().backward();
  t.optimizer->step();
}

const Case kCases[] = {
    {"Sgd", sgd, plain},
    {"AdamW", adamw, plain},
    {"Maximize",
     [](const Net& net) {
       return std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-3, .maximize = true});
     },
     plain},
    {"ParameterGroups",
     [](const Net& net) {
       using Group = optim::ParameterGroup<optim::AdamWOptions>;
       return std::make_unique<optim::AdamW>(
           std::vector<Group>{{.parameters = {net.w2, net.w1}, .options = {.lr = 0.01, .weight_decay = 0.1}},
                              {.parameters = {net.b1, net.b2}, .options = {.lr = 0.02, .weight_decay = 0}}});
     },
     plain},
    {"BFloat16Masters", adamw, plain, kBFloat16},
    {"NoSync", adamw,
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       for (int part = 0; part < 3; ++part) {
         HookHandle alone;
         if (part < 2) alone = t.reducer->no_sync();
         mul(t.loss(), Scalar(1.0 / (part + 2))).backward();
       }
       t.optimizer->step();
     }},
    {"AccumulationInPieces", adamw,
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       for (int part = 0; part < 3; ++part) mul(t.loss(), Scalar(1.0 / (part + 2))).backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kError, false},
    {"AccumulationOfSomeParameters", adamw,  // the others begin again, in a bucket with parts of earlier passes
     [](Training& t, int step) {
       if (step % 2 == 0) t.optimizer->zero_grad();
       t.net.w1.zero_grad();
       t.net.b2.zero_grad();
       t.loss().backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kError, false},
    {"Clipping", adamw,
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       t.loss().backward();
       const Tensor norm = optim::clip_grad_norm_(t.net.parameters(), 0.05);
       EXPECT_GT(norm.item<double>(), 0.05);  // otherwise this is the case AdamW
       optim::clip_grad_norm_(t.net.parameters(), 0.01, std::numeric_limits<double>::infinity());
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kError, false},
    {"ClippingOfValues", adamw,
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       t.loss().backward();
       optim::clip_grad_value_(t.net.parameters(), 0.01);
       t.optimizer->step();
     }},
    {"Unused", adamw,
     [](Training& t, int step) {
       t.optimizer->zero_grad();
       // Even steps do not reach the second layer on any rank; odd steps reach it on rank 0 only.
       Tensor loss = linear(t.x, t.net.w1, t.net.b1).square().mean();
       if (step % 2 == 1 && t.context.rank() == 0) loss = t.loss();
       loss.backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kAllow},
    {"FrozenThenTrained", adamw,
     [](Training& t, int step) {
       t.net.b1.requires_grad_(step >= 3);
       plain(t, step);
     },
     kFloat64, UnusedParameters::kError, true, [](Net& net) { net.b1.requires_grad_(false); }},
    {"Tied", adamw,  // w1 is used twice
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       add(t.loss(), t.net.w1.square().mean()).backward();
       t.optimizer->step();
     }},
    {"Scaler", adamw,
     [](Training& t, int step) {
       static thread_local std::unique_ptr<optim::GradScaler> scaler;
       if (step == 0) scaler = std::make_unique<optim::GradScaler>(optim::GradScalerOptions{.init_scale = 64});
       t.optimizer->zero_grad();
       Tensor loss = t.loss();
       if (step == 2) loss = add(loss, mul(t.net.w1, Scalar(std::numeric_limits<double>::infinity())).sum());
       scaler->backward(loss);
       EXPECT_EQ(scaler->step(*t.optimizer), step != 2);
       scaler->update();
       EXPECT_EQ(scaler->get_scale(), step < 2 ? 64 : 32);
     }},
};

class Sharding : public ::testing::TestWithParam<std::tuple<Case, int>> {};

std::vector<double> train(Context& context, const Case& how, ReducerOptions options, int steps) {
  options.unused = how.unused;
  Training t(context, options, how.dtype, how.prepare);
  t.optimizer = how.optimizer(t.net);
  for (int step = 0; step < steps; ++step) how.step(t, step);
  return all_values(t.net);
}

TEST_P(Sharding, TrainsAsOneWholeOptimizer) {
  const auto& [how, world] = GetParam();
  run_threads(rank_devices(world), [&, &how = how](Context& context) {
    const int steps = 10;
    const std::vector<double> expected = train(context, how, {}, steps);
    for (const Shard level : kLevels) {
      const std::vector<double> got = train(context, how, {.shard = level}, steps);
      if (how.exact) {
        EXPECT_EQ(got, expected) << to_string(level);
      } else {
        expect_near(got, expected, 1e-12);
      }
    }
  });
}

/// There are four emulated GPUs.
std::vector<int> worlds() {
  return testing::test_device().is_cpu() ? std::vector<int>{1, 2, 3, 8} : std::vector<int>{1, 2, 3, 4};
}

INSTANTIATE_TEST_SUITE_P(, Sharding, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(worlds())),
                         [](const auto& test) { return str(std::get<0>(test.param).name, std::get<1>(test.param)); });

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
      EXPECT_EQ(error_text<StateError>([&] { t.net.w1.set_grad(zeros_like(t.net.w1)); }),
                "set_grad: the gradient of '" + autograd::leaf(t.net.w1).name +
                    "' is divided among ranks by a DistributedDataParallel; construct that without shard");
      t.net.w1.zero_grad();
      EXPECT_FALSE(t.net.w1.grad().defined());
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
    EXPECT_EQ(
        text_of({.shard = Shard::kOptimizer}, viewed),
        "DistributedDataParallel: 'fc1.bias' shares its memory with another tensor, so the ranks cannot divide it; "
        "construct without shard");
    const std::string levels =
        text_of({.shard = context.rank() == 0 ? Shard::kOptimizer : Shard::kGradients}, Net(1, context.device()));
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
      EXPECT_NE(error_text<StateError>(use).find("was computed within no_sync() and is not averaged"),
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

TEST(ShardingLifetime, GradientBeforeConstructionCounts) {
  run_threads(rank_devices(2), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : {Shard::kNone, Shard::kOptimizer, Shard::kGradients}) {
      const Net net(1, context.device());
      const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
      net.loss(x, y).backward();
      GradientReducer reducer(net.named(), {}, context.group(), {.shard = level});
      net.loss(x, y).backward();
      sgd(net)->step();
      results.push_back(all_values(net));
    }
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
  });
}

TEST(ShardingLifetime, ModelTrainsAloneAndAgainAfterDestruction) {
  run_threads(rank_devices(2), [](Context& context) {
    const Net net(1, context.device());
    const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
    for (const Shard level : kLevels) {
      {
        GradientReducer reducer(net.named(), {}, context.group(), {.shard = level});
        net.loss(x, y).backward();
        sgd(net)->step();
      }
      EXPECT_FALSE(net.w1.grad().defined());
      net.loss(x, y).backward();  // equal on both ranks
      EXPECT_EQ(net.w1.grad().shape(), net.w1.shape());
      const auto optimizer = sgd(net);
      optimizer->step();
      optimizer->zero_grad();
    }
  });
}

TEST(ShardingLifetime, NextStepWorksAfterExceptions) {
  run_threads(rank_devices(2), [](Context& context) {
    for (const Shard level : kLevels) {
      const Case how = {"", adamw, plain};
      const std::vector<double> expected = train(context, how, {}, 2);
      Training t(context, {.shard = level});
      t.optimizer = adamw(t.net);
      plain(t, 0);
      t.optimizer->zero_grad();
      const Tensor loss = t.loss();
      EXPECT_THROW(t.net.loss(t.x, t.y.slice(0, 0, 1)).backward(), Error);  // forward of another batch
      loss.backward();
      EXPECT_THROW(optim::clip_grad_norm_(t.net.parameters(), -1), ValueError);
      t.optimizer->step();
      EXPECT_EQ(all_values(t.net), expected);
    }
  });
}

TEST(ShardingSeveral, ModelsShareAnOptimizerOrHaveTheirOwn) {
  run_threads(rank_devices(3), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : {Shard::kNone, Shard::kOptimizer, Shard::kGradients}) {
      Training a(context, {.shard = level}), b(context, {.shard = level}), whole(context, {});
      std::vector<Tensor> all = a.net.parameters();
      for (const Net* net : {&b.net, &whole.net}) {
        const std::vector<Tensor> own = net->parameters();
        all.insert(all.end(), own.begin(), own.end());
      }
      optim::SGD joint(all, kSgd);
      for (int step = 0; step < 3; ++step) {
        joint.zero_grad();
        add(add(a.loss(), mul(b.loss(), Scalar(2))), whole.loss()).backward();
        optim::clip_grad_norm_(all, 1e6);  // no effect
        joint.step();
      }
      std::vector<double> values = all_values(a.net);
      for (const Net* net : {&b.net, &whole.net}) {
        const std::vector<double> own = all_values(*net);
        values.insert(values.end(), own.begin(), own.end());
      }
      results.push_back(values);
    }
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
  });
}

TEST(ShardingHooks, AverageTheWholeBucket) {
  run_threads(rank_devices(2), [](Context& context) {
    const Case how = {"", adamw, plain};
    for (const auto& hooks : std::vector<std::function<CommHooks()>>{
             [] { return CommHooks{bf16_compress()}; },
             [] { return CommHooks{power_sgd({.rank = 1, .start_step = 1, .min_saving = 1})}; }}) {
      const std::vector<double> expected = train(context, how, {.hooks = hooks()}, 4);
      const std::vector<double> got = train(context, how, {.hooks = hooks(), .shard = Shard::kOptimizer}, 4);
      expect_near(got, expected, 1e-12);
    }
  });
}

TEST(ShardingTraffic, IsThatOfAnAllReduceInTwoHalves) {
  if (!testing::test_device().is_cpu()) GTEST_SKIP() << "spans of NCCL have other bytes";
  run_threads(3, [](Context& context) {
    for (const Shard level : kLevels) {
      Training t(context, {.shard = level});
      t.optimizer = sgd(t.net);
      plain(t, 0);
      context.group()->barrier();
      if (context.rank() == 0) start_trace();
      context.group()->barrier();
      plain(t, 1);
      context.group()->barrier();
      if (context.rank() != 0) continue;
      int64_t num_bytes = 0;
      std::vector<std::string> names;
      for (const TraceEvent& event : stop_trace()) {
        if (event.category != "comm" || event.rank != 0 || event.name.find("bucket") == std::string::npos ||
            event.name.starts_with("launch")) {
          continue;
        }
        names.push_back(event.name);
        num_bytes += event.num_bytes;
      }
      const BucketPlan& plan = t.reducer->plan();
      ASSERT_EQ(names.size(), 2 * plan.buckets.size());
      // float64, padding included: spans have the bytes of the inputs, which are whole buckets and then pieces of them.
      EXPECT_EQ(num_bytes, 8 * plan.buffers[0].num_elements * 4 / 3);
      for (size_t i = 0; i < plan.buckets.size(); ++i) {
        EXPECT_TRUE(names[i].starts_with(str("bucket ", i, " of "))) << names[i];
        // In the order of the next forward.
        const std::string& last = names[2 * plan.buckets.size() - 1 - i];
        EXPECT_EQ(last, str("parameters of bucket ", i, " of ", plan.buckets.size()));
      }
    }
  });
}

/// Bytes of a step's largest state, of all ranks that are threads: after construction, and the peak of three steps.
struct Memory {
  int64_t constructed, peak;
};

Memory memory_of(Context& context, Shard level, int num_layers, int64_t n) {
  std::vector<Shape> shapes(static_cast<size_t>(num_layers), Shape{n});
  const HookedParameters parameters(shapes);
  const Device device;
  std::vector<Tensor> all;
  for (size_t i = 0; i < shapes.size(); ++i) all.push_back(parameters[i]);
  const auto meet = [&] { context.group()->barrier(); };
  meet();
  GradientReducer reducer(many_modules(parameters), {}, context.group(), {.buckets = {1, n * 4, 1}, .shard = level});
  optim::AdamW adam(all, {.lr = 1e-3});
  meet();
  const int64_t constructed = memory_stats(device).allocated;
  meet();
  if (context.rank() == 0) reset_peak_memory(device);
  meet();
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad();
    Tensor loss;
    for (const Tensor& parameter : all) {
      const Tensor term = mul(parameter, Scalar(2)).sum();
      loss = loss.defined() ? add(loss, term) : term;
    }
    loss.backward();
    adam.step();
  }
  meet();
  const Memory result = {constructed, memory_stats(device).peak_allocated};
  meet();
  return result;
}

TEST(ShardingMemory, FollowsTheFormulas) {
  if (!testing::test_device().is_cpu()) GTEST_SKIP() << "the same allocations on GPUs";
  constexpr int kRanks = 4, kLayers = 8;
  constexpr int64_t kBytes = 4 << 20;  // of a layer
  run_threads(kRanks, [](Context& context) {
    const auto all = [](double copies) { return copies * kRanks * kLayers * kBytes; };
    const int64_t before = memory_stats(Device()).allocated;
    context.group()->barrier();
    struct Expected {
      Shard level;
      double constructed, peak;  // bytes by 4 bytes of parameters and rank
    };
    // In `constructed` DDP has buckets. Peaks: parameters, gradients, two moments; kGradients has two buckets in flight
    // and one that backward fills, and a layer's own gradient while it is copied.
    const double n = kRanks, layer = 1.0 / kLayers;
    for (const auto& [level, constructed, peak] :
         {Expected{Shard::kNone, 2, 4}, Expected{Shard::kOptimizer, 1, 2 + 2 / n},
          Expected{Shard::kGradients, 1, 1 + 3 / n}}) {
      const Memory memory = memory_of(context, level, kLayers, kBytes / 4);
      EXPECT_NEAR(static_cast<double>(memory.constructed - before), all(constructed), 0.05 * all(constructed))
          << to_string(level);
      EXPECT_GE(static_cast<double>(memory.peak - before), 0.95 * all(peak)) << to_string(level);
      EXPECT_LE(static_cast<double>(memory.peak - before), 1.05 * all(peak) + all(4 * layer)) << to_string(level);
      context.group()->barrier();
    }
  });
}

}}  // namespace tandem::distributed
