// DistributedDataParallel whose ranks divide the optimizer's state, the gradients and the parameters trains as an
// undivided one. On CPUs and GPUs.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/nn/averaged_model.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/sharded_training.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem::distributed { namespace {

using testing::rank_devices;

/// A way to train: what is constructed, and one step.
struct Case {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Net&)> optimizer;
  std::function<void(Training&, int step)> step;
  DType dtype = kFloat64;
  UnusedParameters unused = UnusedParameters::kError;
  bool exact = true;                            ///< equal bytes; else equal within 1e-12
  std::function<void(Net&)> prepare = nullptr;  ///< before the construction of the reducer
  bool runs_same_units = true;                  ///< on all ranks, as kParameters requires
};

void PrintTo(const Case& how, std::ostream* out) { *out << how.name; }

void plain(Training& t, int /*step*/) { plain_step(t); }

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
       Tensor loss = t.first(t.x).square().mean();
       if (step % 2 == 1 && t.context.rank() == 0) loss = t.loss();
       loss.backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kAllow, true, nullptr, false},
    {"UnusedOnAllRanks", adamw,
     [](Training& t, int step) {
       t.optimizer->zero_grad();
       (step % 2 == 0 ? t.first(t.x).square().mean() : t.loss()).backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kAllow},
    {"FrozenThenTrained", adamw,
     [](Training& t, int step) {
       t.net.b1.requires_grad_(step >= 3);
       plain(t, step);
     },
     kFloat64, UnusedParameters::kError, true, [](Net& net) { net.b1.requires_grad_(false); }},
    {"FrozenLater", adamw,
     [](Training& t, int step) {
       t.net.b1.requires_grad_(step < 3 || step > 6);
       plain(t, step);
     },
     kFloat64, UnusedParameters::kAllow},
    {"UnusedWithNoSync", adamw,
     [](Training& t, int step) {
       t.optimizer->zero_grad();
       {
         const HookHandle alone = t.reducer->no_sync();
         t.loss().backward();
       }
       t.in("fc1", [&] {
          return linear(t.x, t.net.w1, step % 2 == 0 ? t.net.b1 : Tensor()).square().mean();
        }).backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kAllow},
    {"Tied", adamw,  // w1 is used twice, its unit called twice
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       add(t.loss(), t.in("fc1", [&] { return t.net.w1.square().mean(); })).backward();
       t.optimizer->step();
     }},
    {"Scaler", adamw,
     [](Training& t, int step) {
       static thread_local std::unique_ptr<optim::GradScaler> scaler;
       if (step == 0) scaler = std::make_unique<optim::GradScaler>(optim::GradScalerOptions{.init_scale = 64});
       t.optimizer->zero_grad();
       Tensor loss = t.loss();
       const auto infinite = [&] { return mul(t.net.w1, Scalar(std::numeric_limits<double>::infinity())).sum(); };
       if (step == 2) loss = add(loss, t.in("fc1", infinite));
       scaler->backward(loss);
       if (step == 4) scaler->unscale_(*t.optimizer);
       EXPECT_EQ(scaler->step(*t.optimizer), step != 2);
       scaler->update();
       EXPECT_EQ(scaler->get_scale(), step < 2 ? 64 : 32);
     }},
    {"TwoForwards", adamw,
     [](Training& t, int /*step*/) {
       t.optimizer->zero_grad();
       const Tensor a = t.loss(), b = mul(t.loss(), Scalar(2));
       a.backward();
       b.backward();
       t.optimizer->step();
     },
     kFloat64, UnusedParameters::kError, false},
};

class Sharding : public ::testing::TestWithParam<std::tuple<Case, int>> {};

std::vector<double> train(Context& context, const Case& how, ReducerOptions options, int steps) {
  options.unused = how.unused;
  Training t(context, options, how.dtype, how.prepare);
  t.optimizer = how.optimizer(t.net);
  for (int step = 0; step < steps; ++step) how.step(t, step);
  return t.values();
}

TEST_P(Sharding, TrainsAsOneWholeOptimizer) {
  const Case& how = std::get<0>(GetParam());
  run_threads(rank_devices(std::get<1>(GetParam())), [&](Context& context) {
    const int steps = testing::test_device().is_cpu() && !testing::kThreadSanitizer ? 50 : 10;  // others are slow
    const std::vector<double> expected = train(context, how, {}, steps);
    for (const Shard level : kLevels) {
      if (level == Shard::kParameters && !how.runs_same_units) continue;
      const std::vector<double> got = train(context, how, {.shard = level}, steps);
      if (how.exact) {
        EXPECT_EQ(got, expected) << to_string(level);
      } else {
        expect_near(got, expected, 1e-12);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Sharding, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(worlds())),
                         [](const auto& test) { return str(std::get<0>(test.param).name, std::get<1>(test.param)); });

/// Values of parameters of several dtypes, one of them empty, after steps.
std::vector<double> train_mixed(Context& context, Shard level) {
  const Device device = context.device();
  const NamedTensors named = {
      {"a.x", values({70}, 1).to(device)},         {"a.y", values({3, 5}, 2).to(kFloat32).to(device)},
      {"b.empty", zeros({0}, {kFloat32, device})}, {"c.z", values({40}, 3).to(kBFloat16).to(device)},
      {"c.w", values({9}, 4).to(device)},          {"d.empty", zeros({0, 4}, {kFloat64, device})}};
  std::vector<Tensor> all;
  for (auto [name, tensor] : named) all.push_back(tensor.requires_grad_());
  GradientReducer reducer(named, {}, context.group(), {.buckets = {64, 256, 64}, .shard = level});
  optim::AdamW adam(all, {.lr = 0.01});
  for (int step = 0; step < 5; ++step) {
    adam.zero_grad();
    Tensor loss;
    {
      const ObservedCall call(level == Shard::kParameters ? reducer.units()[0].second : nullptr);
      for (const Tensor& p : all) {
        const Tensor term = mul(p.to(kFloat64), Scalar(context.rank() + step + 1)).sum();
        loss = loss.defined() ? add(loss, term) : term;
      }
    }
    loss.backward();
    adam.step();
  }
  const HookHandle whole = reducer.gathered();
  std::vector<double> result;
  for (const Tensor& p : all) {
    for (const double value : p.detach().to(kFloat64).to_vector<double>()) result.push_back(value);
  }
  return result;
}

TEST(ShardingLayout, SeveralDtypesAndEmptyParameters) {
  run_threads(rank_devices(3), [](Context& context) {
    const std::vector<double> expected = train_mixed(context, Shard::kNone);
    for (const Shard level : kLevels) EXPECT_EQ(train_mixed(context, level), expected);
  });
}

TEST(ShardingSeveral, ModelsShareAnOptimizerOrHaveTheirOwn) {
  run_threads(rank_devices(3), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : kAllLevels) {
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
      std::vector<double> values = a.values();
      for (const Training* t : {&b, &whole}) {
        const std::vector<double> own = t->values();
        values.insert(values.end(), own.begin(), own.end());
      }
      results.push_back(values);
    }
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
  });
}

TEST(ShardingAverages, AreThoseOfUndividedTraining) {
  run_threads(rank_devices(3), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const Shard level : kAllLevels) {
      manual_seed(1);
      nn::Linear model(5, 3);
      model.to(context.device());
      nn::AveragedModel<nn::Linear> averaged(model, {.avg_fn = nn::get_ema_avg_fn(0.9)}, 5, 3);
      DistributedDataParallel ddp(model, context.group(), {.shard = level});
      optim::AdamW adam(model.parameters(), {.lr = 0.1});
      const Tensor x = values({4, 5}, static_cast<uint64_t>(context.rank())).to(kFloat32).to(context.device());
      for (int step = 0; step < 5; ++step) {
        adam.zero_grad();
        ddp(x).square().mean().backward();
        adam.step();
        const HookHandle whole = ddp.gathered();
        averaged.update_parameters(model);
      }
      results.emplace_back();
      for (const Tensor& p : averaged.parameters()) {
        for (const double value : p.detach().to(kFloat64).to_vector<double>()) results.back().push_back(value);
      }
    }
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]);
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

}}  // namespace tandem::distributed
