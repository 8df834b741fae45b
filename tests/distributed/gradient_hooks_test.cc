#include <tandem/distributed/comm_hooks.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/tree_sum.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;

constexpr BucketSizes kTiny = {64, 64, 64};

class CommHooksWorldSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, CommHooksWorldSizes,
                         ::testing::ValuesIn(testing::kThreadSanitizer ? std::vector{1, 3} : std::vector{1, 2, 3, 4}));

/// Reference for half types: float32 sums in the documented order, divided, rounded once.
template <class H, class T>
std::vector<T> mean_of_rounded(const std::vector<std::vector<T>>& by_rank) {
  std::vector<T> means;
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    std::vector<float> terms;
    for (const std::vector<T>& of_rank : by_rank) terms.push_back(static_cast<float>(static_cast<H>(of_rank[i])));
    const float mean = testing::tree_sum(terms) / static_cast<float>(terms.size());
    means.push_back(static_cast<T>(static_cast<float>(static_cast<H>(mean))));
  }
  return means;
}

TEST_P(CommHooksWorldSizes, CastsRoundOnlyBeforeAndAfterMean) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const bool brain : {false, true}) {
      for (const BucketSizes& sizes : {kTiny, BucketSizes{}}) {
        run_threads(GetParam(), [&](Context& context) {
          const std::vector<Shape> shapes = {{33, 7}, {1}, {0, 3}, {31}};
          HookedParameters p(shapes, dtype);
          GradientReducer reducer(p.named(), {}, context.group(),
                                  {.buckets = sizes, .hooks = {brain ? bf16_compress() : fp16_compress()}});
          p.backward(context.rank(), 5);
          for (size_t i = 0; i < shapes.size(); ++i) {
            visit_floating_dtype(dtype, [&]<class T>() {
              std::vector<std::vector<T>> all;
              for (int r = 0; r < GetParam(); ++r) all.push_back(p.gradient(i, r, 5).to_vector<T>());
              const auto expected = brain ? mean_of_rounded<BFloat16>(all) : mean_of_rounded<Half>(all);
              EXPECT_EQ(p[i].grad().to_vector<T>(), expected);
            });
          }
        });
      }
    }
  }
}

TEST(CommHooks, Fp16OverflowsToInfinityAndBf16DoesNot) {
  run_threads(2, [](Context& context) {
    HookedParameters p({Shape{3}});
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {fp16_compress()}});
    // 60000 + 60000 overflows float16, but the mean does not.
    p.backward({from_vector<float>({60000, context.rank() == 0 ? 70000.0f : 1, -1e-9f}, {3})});
    const float infinite = std::numeric_limits<float>::infinity();
    EXPECT_EQ(p[0].grad().to_vector<float>(), (std::vector<float>{60000, infinite, -0.0f}));
  });
  run_threads(2, [](Context& context) {
    HookedParameters p({Shape{2}});
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {bf16_compress()}});
    p.backward({from_vector<float>({0x1p+100f, 0x1p-100f}, {2})});
    EXPECT_EQ(p[0].grad().to_vector<float>(), (std::vector<float>{0x1p+100f, 0x1p-100f}));
  });
}

TEST(CommHooks, CastHooksAverageMixedDtypes) {
  for (const CommHooks& hooks : {CommHooks{fp16_compress()}, CommHooks{bf16_compress()}}) {
    run_threads(3, [&](Context& context) {
      Tensor a = ones({5}, {kBFloat16}).requires_grad_();
      Tensor b = ones({2, 3}, {kFloat64}).requires_grad_();
      Tensor c = ones({7}, {kFloat16}).requires_grad_();
      Tensor d = ones({9}).requires_grad_();
      GradientReducer reducer({{"m.a", a}, {"m.b", b}, {"m.c", c}, {"m.d", d}}, {}, context.group(),
                              {.buckets = kTiny, .hooks = hooks});
      Tensor loss = b.sum();
      for (const Tensor& t : {a, c, d}) loss = add(loss, t.to(kFloat64).sum());
      mul(loss, Scalar(context.rank() + 1.0)).backward();  // the mean over three ranks is 2
      EXPECT_EQ(a.grad().to_vector<BFloat16>()[4], BFloat16(2.0f));
      EXPECT_EQ(b.grad().to_vector<double>(), std::vector<double>(6, 2));
      EXPECT_EQ(c.grad().to_vector<Half>()[6], Half(2.0f));
      EXPECT_EQ(d.grad().to_vector<float>(), std::vector<float>(9, 2));
    });
  }
}

/// Bytes and number of collectives whose names begin with "bucket", on one rank in one backward pass.
std::pair<int64_t, int> bytes_on_the_wire(const std::function<CommHooks()>& hooks, int64_t hook_report_every = 0) {
  constexpr BucketSizes kOne = {1 << 20, 1 << 20, 1 << 20};
  start_trace();
  run_threads(2, [&](Context& context) {
    HookedParameters p({{40, 30}, {40}, {6, 5, 4}, {3, 2}});
    GradientReducer reducer(p.named(), {}, context.group(),
                            {.buckets = kOne, .hooks = hooks(), .hook_report_every = hook_report_every});
    p.backward(context.rank(), 0);
  });
  std::pair<int64_t, int> sum{0, 0};
  for (const TraceEvent& event : stop_trace()) {
    if (event.rank != 1 || event.category != "comm" || !event.name.starts_with("bucket")) continue;
    sum.first += event.num_bytes;
    ++sum.second;
  }
  return sum;
}

TEST(CommHooks, SentBytesMatchHookCompression) {
  const auto expect_sent = [](int64_t elements, int64_t bytes_of_each, int exchanges, auto... hooks) {
    EXPECT_EQ(bytes_on_the_wire([&] { return CommHooks{hooks()...}; }), std::pair(elements * bytes_of_each, exchanges));
  };
  // Each parameter is padded to 16 floats: 1200, 48, 128, 16 elements.
  expect_sent(1392, 4, 1);
  expect_sent(1392, 2, 1, fp16_compress);
  expect_sent(1392, 2, 1, bf16_compress);
  // Rank 2: [40, 30] and [6, 20] become 2 * 70 and 2 * 26 elements; 40 and 6 are sent uncompressed.
  const auto saving = [](double least) {
    return [least] { return power_sgd({.rank = 2, .start_step = 0, .min_saving = least}); };
  };
  expect_sent(140 + 52 + 46, 4, 2, saving(2));
  expect_sent(140 + 52 + 46, 2, 2, saving(2), bf16_compress);
  expect_sent(140 + 120 + 46, 4, 2, saving(3));
  expect_sent(1392, 4, 1, [] { return power_sgd({.rank = 2, .start_step = 1}); });
  // A measured step also sends the exact bucket, and replays with the first hooks of the chain.
  EXPECT_EQ(bytes_on_the_wire([] { return CommHooks{bf16_compress()}; }, 1), std::pair(int64_t{(4 + 2) * 1392}, 2));
  EXPECT_EQ(bytes_on_the_wire(
                [&] {
                  return CommHooks{saving(2)(), bf16_compress()};
                },
                1),
            std::pair(int64_t{4 * 1392 + (4 + 2) * 238}, 5));
}

/// All hooks, with their names for failure messages.
struct Chain {
  const char* name;
  std::function<CommHooks()> make;
};
const std::vector<Chain> kChains = {
    {"fp16", [] { return CommHooks{fp16_compress()}; }},
    {"bf16", [] { return CommHooks{bf16_compress()}; }},
    {"power_sgd", [] { return CommHooks{power_sgd({.rank = 2, .start_step = 2, .min_saving = 1})}; }},
    {"power_sgd and bf16",
     [] {
       return CommHooks{power_sgd({.rank = 1, .start_step = 1, .min_saving = 1}), bf16_compress()};
     }},
    {"power_sgd, bf16 and fp16",
     [] {
       return CommHooks{power_sgd({.rank = 2, .start_step = 0, .min_saving = 1}), bf16_compress(), fp16_compress()};
     }},
};

TEST_P(CommHooksWorldSizes, RanksEndWithBitwiseEqualGradients) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    std::mutex mutex;
    std::vector<std::vector<float>> results;
    run_threads(GetParam(), [&](Context& context) {
      const HookedParameters p({{9, 8}, {3}, {33, 7}, {0, 4}, {12, 12}, {1}, {5, 2, 3}, {31, 2}});
      GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = chain.make()});
      std::vector<float> all;
      for (int step = 0; step < 8; ++step) {
        p.backward(context.rank(), step);
        for (size_t i = 0; i < 8; ++i) {
          for (const float v : p[i].grad().to_vector<float>()) all.push_back(v);
        }
      }
      std::lock_guard lock(mutex);
      results.push_back(all);
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]);
    for (const float v : results[0]) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(CommHooksWorldSizes, SmallNetLearnsWithEveryHookChain) {
  constexpr int kSteps = 40;
  const auto loss_of = [](const Net& net) { return net.loss(inputs(), labels()).item(); };
  const Net trained(1);
  const double before = loss_of(trained);
  optim::SGD alone(trained.parameters(), kSgd);
  for (int step = 0; step < kSteps; ++step) {
    alone.zero_grad();
    trained.loss(inputs(), labels()).backward();
    alone.step();
  }
  const double after = loss_of(trained);
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    run_threads(GetParam(), [&](Context& context) {
      const Net net(1);
      GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny, .hooks = chain.make()});
      optim::SGD sgd(net.parameters(), kSgd);
      const int64_t share = kItems / context.world_size();
      const Tensor x = inputs().slice(0, context.rank() * share, (context.rank() + 1) * share);
      const Tensor y = labels().slice(0, context.rank() * share, (context.rank() + 1) * share).contiguous();
      for (int step = 0; step < kSteps; ++step) {
        sgd.zero_grad();
        net.loss(x, y).backward();
        sgd.step();
      }
      EXPECT_LT(loss_of(net), before - 0.9 * (before - after));
    });
  }
}

TEST(CommHooks, ResumedStateGivesBitwiseEqualGradients) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    run_threads(2, [&](Context& context) {
      const std::vector<Shape> shapes = {{9, 8}, {33, 7}, {6}};
      const HookedParameters p(shapes);
      const HookedParameters q(shapes);
      const auto options = [&] { return ReducerOptions{.hooks = chain.make(), .hook_report_every = 1}; };
      GradientReducer whole(p.named(), {}, context.group(), options());
      GradientReducer resumed(q.named(), {}, context.group(), options());
      p.backward(context.rank(), 0);
      p.backward(context.rank(), 1);
      p.backward(context.rank(), 2);
      q.backward(context.rank(), 77);
      resumed.load_state_dict(whole.state_dict());
      for (int step = 3; step < 6; ++step) {
        p.backward(context.rank(), step);
        q.backward(context.rank(), step);
        EXPECT_EQ(whole.hook_report().step, step + 1);
        EXPECT_EQ(resumed.hook_report().step, step + 1);
        for (size_t i = 0; i < shapes.size(); ++i) {
          EXPECT_EQ(p[i].grad().to_vector<float>(), q[i].grad().to_vector<float>());
        }
      }
    });
  }
}

TEST(CommHooks, NoSyncAccumulationMatchesSingleBackward) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    run_threads(2, [&](Context& context) {
      Tensor a = ones({9, 8}).requires_grad_();
      Tensor b = ones({9, 8}).requires_grad_();
      GradientReducer accumulated({{"w", a}}, {}, context.group(), {.hooks = chain.make()});
      GradientReducer at_once({{"w", b}}, {}, context.group(), {.hooks = chain.make()});
      for (int step = 0; step < 4; ++step) {
        a.zero_grad();
        b.zero_grad();
        const Tensor factor = values({9, 8}, static_cast<uint64_t>(20 + step + 10 * context.rank())).to(kFloat32);
        {
          const HookHandle alone = accumulated.no_sync();
          mul(a, factor).sum().backward();
        }
        mul(a, factor).sum().backward();
        mul(b, mul(factor, Scalar(2))).sum().backward();
        EXPECT_EQ(a.grad().to_vector<float>(), b.grad().to_vector<float>());
      }
    });
  }
}

TEST(CommHooks, UnusedParametersCountAsZero) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    run_threads(2, [&](Context& context) {
      Tensor a = ones({8, 8}, {kFloat64}).requires_grad_();
      Tensor b = ones({8, 8}, {kFloat64}).requires_grad_();
      Tensor c = ones({8, 8}, {kFloat64}).requires_grad_();
      GradientReducer reducer({{"a", a}, {"b", b}, {"c", c}}, {}, context.group(),
                              {.unused = UnusedParameters::kAllow, .hooks = chain.make()});
      for (int step = 0; step < 4; ++step) {
        for (Tensor* t : {&a, &b, &c}) t->zero_grad();
        Tensor loss = a.sum();
        if (context.rank() == 1) loss = add(loss, mul(b, Scalar(8)).sum());
        loss.backward();
        expect_near(a.grad().to_vector<double>(), std::vector<double>(64, 1), 0.02);
        expect_near(b.grad().to_vector<double>(), std::vector<double>(64, 4), 0.08);
        EXPECT_FALSE(c.grad().defined());
      }
    });
  }
}

TEST(CommHooks, CastsAllowOtherCollectivesDuringBackward) {
  run_threads(3, [](Context& context) {
    const HookedParameters p({{9, 8}, {33, 7}, {6}, {40, 2}});
    GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = {bf16_compress()}});
    const Tensor count = ones({1});
    const HookHandle between = p[1].register_post_accumulate_grad_hook(
        [&](const Tensor&) { context.group()->all_reduce(count, ReduceOp::kSum, {.name = "of the model"}); });
    for (int step = 0; step < 50; ++step) {
      count.fill_(1);
      p.backward(context.rank(), step);
      EXPECT_EQ(count.item(), 3);
    }
  });
}

/// Averages with several all-reduces of the whole bucket; counts calls; may make a wrong number of them.
class Rounds final : public CommHook {
 public:
  Rounds(int announced, int made) : announced_(announced), made_(made) {}
  std::string describe() const override { return "rounds"; }
  int num_all_reduces(const GradBucket&) const override { return announced_; }
  void average(const GradBucket& bucket, const AllReduceMean& next, std::function<void()> done) override {
    again(bucket, next, std::move(done), made_);
  }

 private:
  static void again(const GradBucket& bucket, const AllReduceMean& next, std::function<void()> done, int left) {
    if (left == 0) return done();
    next(bucket.values, [&bucket, next, done = std::move(done), left] { again(bucket, next, done, left - 1); });
  }
  const int announced_, made_;
};

TEST_P(CommHooksWorldSizes, NestedMultiExchangeHooksGiveExactMean) {
  constexpr int kSteps = testing::kThreadSanitizer ? 3 : 10;
  run_threads(GetParam(), [&](Context& context) {
    const HookedParameters p({{9, 8}, {33, 7}, {6}, {40, 2}}, kFloat64);
    const auto rounds = [] { return std::make_shared<Rounds>(3, 3); };
    GradientReducer reducer(many_modules(p), {}, context.group(),
                            {.buckets = kTiny, .hooks = {rounds(), rounds()}, .hook_report_every = 1});
    for (int step = 0; step < kSteps; ++step) {
      p.backward(context.rank(), step);
      for (size_t i = 0; i < 4; ++i) expect_near(p[i].grad().to_vector<double>(), p.mean(i, GetParam(), step), 1e-15);
    }
  });
}

TEST(CommHooks, ExchangeCountMismatchFailsAllRanks) {
  for (const int made : {1, 3}) {
    std::mutex mutex;
    int failed = 0;
    run_threads(2, [&](Context& context) {
      const HookedParameters p({{9, 8}, {33, 7}, {6}, {40, 2}});
      GradientReducer reducer(many_modules(p), {}, context.group(),
                              {.buckets = kTiny, .hooks = {std::make_shared<Rounds>(2, made)}});
      try {
        p.backward(context.rank(), 0);
        ADD_FAILURE() << "no error";
      } catch (const StateError& e) {
        EXPECT_EQ(std::string(e.what()),
                  made == 1 ? "GradientReducer: rounds made fewer all-reduces than num_all_reduces() returned"
                            : "GradientReducer: rounds made more all-reduces than num_all_reduces() returned");
        std::lock_guard lock(mutex);
        ++failed;
      } catch (const CommError& e) {  // notified by the other rank first
        EXPECT_NE(std::string(e.what()).find("a communication hook failed: GradientReducer: rounds made"),
                  std::string::npos)
            << e.what();
        std::lock_guard lock(mutex);
        ++failed;
      }
    });
    EXPECT_EQ(failed, 2);
  }
}

TEST(CommHooks, BackwardFailureIsReportedOnOtherRanks) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(chain.name);
    std::string peer;
    run_threads(2, [&](Context& context) {
      const HookedParameters p({{9, 8}, {33, 7}, {6}, {40, 2}});
      GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = chain.make()});
      p.backward(context.rank(), 0);
      if (context.rank() == 0) {
        Tensor last = p[1];
        const HookHandle failing =
            last.register_post_accumulate_grad_hook([](const Tensor&) { throw ValueError("a hook of rank 0 failed"); });
        EXPECT_EQ(error_text<ValueError>([&] { p.backward(0, 1); }), "a hook of rank 0 failed");
      } else {
        peer = error_text<CommError>([&] { p.backward(1, 1); });
      }
    });
    EXPECT_TRUE(peer.ends_with("\n  rank 0: backward failed before all gradients were exchanged")) << peer;
  }
}

TEST(CommHooks, InvalidHookOptionsAreRejected) {
  run_threads(2, [](Context& context) {
    const auto error = [&](ReducerOptions options) {
      const HookedParameters p({Shape{9, 8}});
      return error_text<ValueError>([&] { GradientReducer reducer(p.named(), {}, context.group(), options); });
    };
    EXPECT_EQ(
        error({.hooks = {bf16_compress(), power_sgd()}}),
        "GradientReducer: power_sgd(rank 2, from step 10, saving 2, seed 2101305069) must be the first hook of the "
        "chain because it needs whole parameters\n  hooks  bf16_compress > power_sgd(rank 2, from step 10, saving 2, "
        "seed "
        "2101305069)");
    EXPECT_EQ(error({.hooks = {fp16_compress(), nullptr}}), "GradientReducer: a hook is null");
    EXPECT_EQ(error({.hook_report_every = 5}), "GradientReducer: hook_report_every requires hooks");
    EXPECT_EQ(error({.hooks = {fp16_compress()}, .hook_report_every = -1}),
              "GradientReducer: hook_report_every -1 is negative");

    const auto hook = power_sgd();
    const HookedParameters p({Shape{9, 8}}), q({Shape{9, 8}});
    const GradientReducer first(p.named(), {}, context.group(), {.hooks = {hook}});
    EXPECT_EQ(
        error_text<StateError>([&] { GradientReducer second(q.named(), {}, context.group(), {.hooks = {hook}}); }),
        "power_sgd: this hook already belongs to a DistributedDataParallel; create one hook for each");
  });
  EXPECT_EQ(error_text<ValueError>([] { power_sgd({.rank = 0}); }), "power_sgd: rank 0 is less than 1");
  EXPECT_EQ(error_text<ValueError>([] { power_sgd({.start_step = -1}); }), "power_sgd: start_step -1 is negative");
  EXPECT_EQ(error_text<ValueError>([] { power_sgd({.min_saving = 0.5}); }), "power_sgd: min_saving 0.5 is less than 1");
}

TEST(CommHooks, HookMismatchBetweenRanksIsRejected) {
  run_threads(2, [](Context& context) {
    const HookedParameters p({Shape{9, 8}});
    const uint64_t seed = context.rank() == 0 ? 1 : 2;
    EXPECT_EQ(error_text<StateError>([&] {
                GradientReducer reducer(p.named(), {}, context.group(),
                                        {.hooks = {power_sgd({.seed = seed}), bf16_compress()}});
              }),
              "DistributedDataParallel: ranks have different communication hooks\n"
              "  rank 0: communication hooks power_sgd(rank 2, from step 10, saving 2, seed 1) > bf16_compress, report "
              "every 0\n"
              "  rank 1: communication hooks power_sgd(rank 2, from step 10, saving 2, seed 2) > bf16_compress, report "
              "every 0");
    CommHooks hooks;
    if (context.rank() == 0) hooks.push_back(bf16_compress());
    EXPECT_EQ(
        error_text<StateError>([&] { GradientReducer reducer(p.named(), {}, context.group(), {.hooks = hooks}); }),
        "DistributedDataParallel: ranks have different communication hooks\n"
        "  rank 0: communication hooks bf16_compress, report every 0\n"
        "  rank 1: (end of list)");
  });
}

TEST(CommHooks, StateOfDifferentHooksIsRejected) {
  run_threads(1, [](Context& context) {
    const auto make = [&](const HookedParameters& p, CommHooks hooks) {
      return std::make_unique<GradientReducer>(p.named(), NamedTensors{}, context.group(),
                                               ReducerOptions{.hooks = std::move(hooks)});
    };
    const HookedParameters a({Shape{9, 8}}), b({Shape{9, 8}}), c({Shape{8, 9}}), d({Shape{9, 8}});
    const auto low_rank = make(a, {power_sgd({.seed = 5})});
    const auto cast = make(b, {bf16_compress()});
    const auto smaller = make(c, {power_sgd({.seed = 5})});
    const auto none = make(d, {});
    EXPECT_TRUE(none->state_dict().empty());
    EXPECT_EQ(error_text<StateError>([&] { cast->load_state_dict(low_rank->state_dict()); }),
              "GradientReducer: the state belongs to other communication hooks\n"
              "  saved    power_sgd(rank 2, from step 10, saving 2, seed 5)\n  current  bf16_compress");
    EXPECT_EQ(error_text<StateError>([&] { none->load_state_dict(cast->state_dict()); }),
              "GradientReducer: the state belongs to communication hooks, but this reducer has none");
    EXPECT_EQ(error_text<StateError>([&] { smaller->load_state_dict(low_rank->state_dict()); }),
              "power_sgd: 'net.p0.error' does not fit\n  saved  float32 [9, 8]\n  here   float32 [8, 9]");
  });
}

}}  // namespace tandem::distributed
