// Error measurement of communication hooks: the reported errors, and that the training does not change.
#include <tandem/distributed/comm_hooks.h>

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/launch.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;
using tandem::testing::rank_devices;

constexpr BucketSizes kTiny = {64, 64, 64};

class GradientShadowWorldSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, GradientShadowWorldSizes, ::testing::Values(1, 2, 3, 4));

TEST_P(GradientShadowWorldSizes, ErrorIsReportedWithoutChangingGradients) {
  const int world = GetParam();
  run_threads(rank_devices(world), [&](Context& context) {
    const std::vector<Shape> shapes = {{33, 7}, {3}, {12, 12}};
    const HookedParameters p(shapes, kFloat32, context.device());
    const HookedParameters q(shapes, kFloat32, context.device());
    const auto options = [](int64_t every) {
      return ReducerOptions{.buckets = kTiny,
                            .hooks = {power_sgd({.rank = 1, .start_step = 0, .min_saving = 1}), bf16_compress()},
                            .hook_report_every = every};
    };
    GradientReducer with(many_modules(p), {}, context.group(), options(3));
    GradientReducer without(many_modules(q), {}, context.group(), options(0));
    EXPECT_EQ(to_string(with.hook_report()), "no step yet");
    for (int step = 0; step < 7; ++step) {
      p.backward(context.rank(), step);
      q.backward(context.rank(), step);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(p[i].grad().to_vector<float>(), q[i].grad().to_vector<float>());
      EXPECT_EQ(with.hook_report().step, (step + 1) / 3 * 3);
      EXPECT_EQ(without.hook_report().step, 0);
      if ((step + 1) % 3 != 0) continue;
      const HookReport report = with.hook_report();
      ASSERT_EQ(report.buckets.size(), 3u);
      double difference2 = 0, exact2 = 0, delivered2 = 0, product = 0;
      for (size_t b = 0; b < 3; ++b) {
        const size_t i = 2 - b;  // buckets are in backward order
        const std::vector<double> exact = p.mean(i, world, step);
        const std::vector<double> delivered = HookedParameters::values_of(p[i].grad());
        double d2 = 0, e2 = 0, g2 = 0, eg = 0;
        for (size_t j = 0; j < exact.size(); ++j) {
          d2 += std::pow(delivered[j] - exact[j], 2);
          e2 += exact[j] * exact[j];
          g2 += delivered[j] * delivered[j];
          eg += exact[j] * delivered[j];
        }
        EXPECT_NEAR(report.buckets[b].relative_error, std::sqrt(d2 / e2), 1e-6);
        EXPECT_NEAR(report.buckets[b].cosine, eg / std::sqrt(e2 * g2), 1e-6);
        EXPECT_EQ(report.buckets[b].name.substr(0, 11), str("bucket ", b, " of"));
        difference2 += d2, exact2 += e2, delivered2 += g2, product += eg;
      }
      EXPECT_NEAR(report.relative_error, std::sqrt(difference2 / exact2), 1e-6);
      EXPECT_NEAR(report.cosine, product / std::sqrt(exact2 * delivered2), 1e-6);
    }
  });
}

TEST_P(GradientShadowWorldSizes, ErrorsAreAttributedToEachHook) {
  const int world = GetParam();
  run_threads(rank_devices(world), [&](Context& context) {
    const std::vector<Shape> shapes = {{33, 7}, {3}, {12, 12}};
    const HookedParameters p(shapes, kFloat32, context.device());
    const HookedParameters q(shapes, kFloat32, context.device());
    const auto low_rank = [] { return power_sgd({.rank = 1, .start_step = 0, .min_saving = 1}); };
    const auto make = [&](const HookedParameters& parameters, CommHooks hooks) {
      return GradientReducer(many_modules(parameters), {}, context.group(),
                             {.buckets = kTiny, .hooks = std::move(hooks), .hook_report_every = 1});
    };
    GradientReducer chain = make(p, {low_rank(), bf16_compress(), fp16_compress()});
    GradientReducer first = make(q, {low_rank()});
    for (int step = 0; step < 5; ++step) {
      // The result of the first hook alone, with its state in the chain.
      State state = chain.state_dict();
      state.set("hooks", first.state_dict().get<std::string>("hooks"));
      first.load_state_dict(state);
      p.backward(context.rank(), step);
      q.backward(context.rank(), step);
      const HookReport report = chain.hook_report();
      ASSERT_EQ(report.hooks.size(), 3u);
      EXPECT_EQ(report.hooks[0].name, low_rank()->describe());
      EXPECT_EQ(report.hooks[0].relative_error, first.hook_report().relative_error);
      double added2 = 0, exact2 = 0;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const std::vector<double> with = HookedParameters::values_of(p[i].grad());
        const std::vector<double> without = HookedParameters::values_of(q[i].grad());
        for (size_t j = 0; j < with.size(); ++j) added2 += std::pow(with[j] - without[j], 2);
        for (const double v : p.mean(i, world, step)) exact2 += v * v;
      }
      EXPECT_EQ(report.hooks[1].name, "bf16_compress");
      EXPECT_NEAR(report.hooks[1].relative_error, std::sqrt(added2 / exact2), 1e-6);
      EXPECT_GT(report.hooks[1].relative_error, 0);
      // Two-byte types are sent unchanged.
      EXPECT_EQ(report.hooks[2].name, "fp16_compress");
      EXPECT_EQ(report.hooks[2].relative_error, 0);
      double sum = 0;
      for (const HookReport::Hook& hook : report.hooks) sum += hook.relative_error;
      EXPECT_LE(report.relative_error, sum * (1 + 1e-9));
      EXPECT_GE(report.relative_error, report.hooks[0].relative_error - report.hooks[1].relative_error - 1e-9);
    }
  });
}

TEST(GradientShadow, FirstHookHasNoErrorBeforeStartStep) {
  run_threads(rank_devices(2), [](Context& context) {
    const HookedParameters p({{33, 7}, {3}}, kFloat32, context.device());
    GradientReducer reducer(
        many_modules(p), {}, context.group(),
        {.buckets = kTiny, .hooks = {power_sgd({.start_step = 1}), bf16_compress()}, .hook_report_every = 1});
    p.backward(context.rank(), 0);
    HookReport report = reducer.hook_report();
    EXPECT_EQ(report.hooks[0].relative_error, 0);
    EXPECT_EQ(report.hooks[1].relative_error, report.relative_error);
    EXPECT_GT(report.relative_error, 0);
    p.backward(context.rank(), 1);
    EXPECT_GT(reducer.hook_report().hooks[0].relative_error, 0.1);
    report.hooks[1].relative_error = 0.0024;
    EXPECT_TRUE(to_string(report).ends_with(
        "'; by hook: power_sgd(rank 2, from step 1, saving 2, seed 2101305069) 0, bf16_compress 0.0024"))
        << to_string(report);
  });
}

TEST(GradientShadow, ZeroAndUnderflowingGradientsGiveDefinedReport) {
  run_threads(rank_devices(2), [](Context& context) {
    const HookedParameters p({Shape{3}, Shape{2}}, kFloat32, context.device());
    GradientReducer reducer(many_modules(p), {}, context.group(),
                            {.buckets = kTiny, .hooks = {fp16_compress()}, .hook_report_every = 1});
    // The mean is too small for float16 in one bucket, and 0 in the other.
    p.backward({full({3}, 1e-9f), zeros({2})});
    const HookReport report = reducer.hook_report();
    EXPECT_EQ(report.buckets[0].relative_error, 0);
    EXPECT_EQ(report.buckets[0].cosine, 1);
    EXPECT_EQ(report.buckets[1].relative_error, 1);
    EXPECT_EQ(report.buckets[1].cosine, 0);
    EXPECT_EQ(to_string(report),
              "step 1: relative error 1, cosine 0.00000; worst 1, 0.00000 in bucket 1 of 2: 'layer0.weight'");
  });
}

/// Cannot restore its state.
struct Stubborn final : CommHook {
  std::string describe() const override { return "stubborn"; }
  void average(const GradBucket& bucket, const AllReduceMean& next, std::function<void()> done) override {
    next(bucket.values, std::move(done));
  }
  State state_dict() const override {
    State state;
    state.set("moods", int64_t{1});
    return state;
  }
  void load_state_dict(const State&) override {
    if (Context::current().rank() == 0) throw StateError("not again");
  }
};

TEST(GradientShadow, ShadowStepFailureIsReportedOnOtherRanks) {
  run_threads(rank_devices(2), [](Context& context) {
    const HookedParameters p({{9, 8}}, kFloat32, context.device());
    GradientReducer reducer(p.named(), {}, context.group(),
                            {.hooks = {std::make_shared<Stubborn>()}, .hook_report_every = 2});
    p.backward(context.rank(), 0);
    if (context.rank() == 0) {
      EXPECT_EQ(error_text<StateError>([&] { p.backward(0, 1); }), "not again");
    } else {
      const std::string text = error_text<CommError>([&] { p.backward(1, 1); });
      EXPECT_TRUE(text.ends_with("\n  rank 0: the error measurement of the communication hooks failed: not again"))
          << text;
    }
  });
}

}}  // namespace tandem::distributed
