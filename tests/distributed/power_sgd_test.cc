// PowerSGD as a hook of the reducer, on CPUs and GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::distributed { namespace {

using testing::rank_devices;

constexpr BucketSizes kTiny = {64, 64, 64};

class PowerSgdHook : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, PowerSgdHook, ::testing::Values(1, 2, 3, 4));

TEST(PowerSgd, ParametersAreNotSplitAcrossBuckets) {
  run_threads(rank_devices(2), [](Context& context) {
    const auto buckets = [&](const CommHooks& hooks) {
      const HookedParameters p({{40, 30}, {64, 5}, {7}}, kFloat32, context.device());
      return GradientReducer(p.named(), {}, context.group(), {.buckets = kTiny, .hooks = hooks}).plan().buckets.size();
    };
    EXPECT_EQ(buckets({}), 95u + 1u);
    EXPECT_EQ(buckets({bf16_compress()}), 95u + 1u);
    EXPECT_EQ(buckets({power_sgd()}), 1u);  // one module: one bucket
  });
}

/// sum over k of u_k v_k^T, different on each rank.
Tensor product_of_rank(int64_t rank, int64_t rows, int64_t cols, int of) {
  Tensor sum;
  for (int64_t k = 0; k < rank; ++k) {
    // The same v on all ranks, so that the mean has the same matrix rank.
    const Tensor u = values({rows, 1}, static_cast<uint64_t>(500 + k + 10 * of));
    const Tensor term = mul(u, values({1, cols}, static_cast<uint64_t>(900 + k)));
    sum = sum.defined() ? add(sum, term) : term;
  }
  return sum;
}

TEST_P(PowerSgdHook, LowRankGradientsAreAveragedExactly) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const int64_t rank_of_matrix : {1, 2, 3}) {  // also smaller than the hook's rank
      run_threads(rank_devices(GetParam()), [&](Context& context) {
        const HookedParameters p({{33, 31}, {7}, {17, 4, 5}}, dtype, context.device());
        GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd({.rank = 3, .start_step = 0})}});
        const auto gradients = [&](int rank) {
          return std::vector{product_of_rank(rank_of_matrix, 33, 31, rank).to(dtype), p.gradient(1, rank, 0),
                             product_of_rank(rank_of_matrix, 17, 20, rank).reshape({17, 4, 5}).to(dtype)};
        };
        for (int step = 0; step < 3; ++step) {
          p.backward(gradients(context.rank()));
          for (size_t i = 0; i < 3; ++i) {
            std::vector<double> expected(static_cast<size_t>(p[i].numel()));
            for (int r = 0; r < GetParam(); ++r) {
              const auto one = HookedParameters::values_of(gradients(r)[i]);
              for (size_t j = 0; j < one.size(); ++j) expected[j] += one[j] / GetParam();
            }
            expect_near(HookedParameters::values_of(p[i].grad()), expected, dtype == kFloat32 ? 1e-6 : 1e-14);
          }
        }
      });
    }
  }
}

TEST_P(PowerSgdHook, IsExactBeforeStartStep) {
  run_threads(rank_devices(GetParam()), [&](Context& context) {
    const HookedParameters p({{33, 31}}, kFloat64, context.device());
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd({.rank = 2, .start_step = 2})}});
    for (int step = 0; step < 4; ++step) {
      p.backward(context.rank(), step);
      const std::vector<double> expected = p.mean(0, GetParam(), step);
      double distance = 0;
      const std::vector<double> got = p[0].grad().to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i) distance = std::max(distance, std::abs(got[i] - expected[i]));
      if (step < 2) {
        EXPECT_LT(distance, 1e-15);
      } else {
        EXPECT_GT(distance, 0.01);
      }
    }
  });
}

class PowerSgdErrorFeedback : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(, PowerSgdErrorFeedback,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{3}, std::vector{4, 2, 3}));

/// The results over all steps plus the remaining errors equal the exact means, also if the number of ranks changes.
TEST_P(PowerSgdErrorFeedback, PreservesGradientSum) {
  for (const bool through_bf16 : {false, true}) {
    constexpr int kSteps = 6;
    std::mutex mutex;
    std::vector<std::vector<double>> delivered(2), left(2), sent(2);
    for (size_t i = 0; i < 2; ++i) {
      const size_t n = i == 0 ? 33 * 31 : 16 * 9;
      delivered[i].resize(n);
      left[i].resize(n);
      sent[i].resize(n);
    }
    const auto add_to = [](std::vector<double>& sum, const std::vector<double>& more, double factor) {
      ASSERT_EQ(sum.size(), more.size());
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += factor * more[j];
    };
    std::vector<State> saved;
    for (const int world : GetParam()) {
      std::vector<State> states(static_cast<size_t>(world));
      run_threads(rank_devices(world), [&](Context& context) {
        const HookedParameters p({{33, 31}, {16, 9}}, kFloat64, context.device());
        CommHooks hooks = {power_sgd({.rank = 2, .start_step = 1, .min_saving = 1})};
        if (through_bf16) hooks.push_back(bf16_compress());
        GradientReducer reducer(p.named(), {}, context.group(), {.buckets = kTiny, .hooks = hooks});
        const bool resumes = !saved.empty();
        if (resumes)
          reducer.load_state_dict(static_cast<int>(saved.size()), [&](int r) { return saved[static_cast<size_t>(r)]; });
        for (int step = 0; step < kSteps; ++step) {
          p.backward(context.rank(), step);
          // Without error feedback: sent uncompressed and rounded.
          if (through_bf16 && step == 0 && !resumes) continue;
          std::lock_guard lock(mutex);
          for (size_t i = 0; i < 2; ++i) {
            add_to(sent[i], p.gradient(i, context.rank(), step).to_vector<double>(), 1.0 / world);
            if (context.rank() == 0) add_to(delivered[i], p[i].grad().to_vector<double>(), 1);
          }
        }
        states[static_cast<size_t>(context.rank())] = reducer.state_dict();
      });
      saved = std::move(states);
    }
    for (size_t i = 0; i < 2; ++i) {
      for (const State& state : saved) {
        const Tensor& error = state.get<Tensor>(str("hook 0.memory.net.p", i, ".error"));
        add_to(left[i], error.to_vector<double>(), 1.0 / static_cast<double>(saved.size()));
      }
      double size = 0;
      for (const double e : left[i]) size = std::max(size, std::abs(e));
      EXPECT_GT(size, 0.1);  // random matrices do not have low rank
      add_to(delivered[i], left[i], 1);
      expect_near(delivered[i], sent[i], 1e-13);
    }
  }
}

TEST(PowerSgd, StatesOfRanksMustFit) {
  run_threads(rank_devices(1), [](Context& context) {
    const HookedParameters p({{20, 24}}, kFloat32, context.device());
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd()}});
    EXPECT_EQ(testing::error_text<StateError>([&] {
                reducer.load_state_dict(2, [](int rank) {
                  State state;
                  state.set("error", zeros({2 + rank}));
                  return state;
                });
              }),
              "GradientReducer: the saved 'error' of rank 1 has shape [3], that of rank 0 [2]");
  });
}

TEST_P(PowerSgdHook, ConstantGradientsAreDeliveredOnAverage) {
  run_threads(rank_devices(GetParam()), [&](Context& context) {
    const HookedParameters p({{20, 24}}, kFloat64, context.device());
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd({.rank = 2, .start_step = 0})}});
    const std::vector<double> expected = p.mean(0, GetParam(), 7);
    std::vector<double> sum(expected.size());
    constexpr int kSteps = 200;
    for (int step = 0; step < kSteps; ++step) {
      p.backward(context.rank(), 7);
      const std::vector<double> got = p[0].grad().to_vector<double>();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += got[i] / kSteps;
    }
    expect_near(sum, expected, 0.05);
  });
}

TEST(PowerSgd, ZeroGradientsDoNotAffectLaterSteps) {
  run_threads(rank_devices(2), [](Context& context) {
    const HookedParameters p({{20, 24}}, kFloat64, context.device());
    GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd({.rank = 2, .start_step = 0})}});
    const Tensor nothing = zeros({20, 24}, {kFloat64});
    const Tensor something = product_of_rank(1, 20, 24, 3);
    for (int step = 0; step < 3; ++step) {
      p.backward({nothing});
      EXPECT_EQ(p[0].grad().to_vector<double>(), nothing.to_vector<double>());
    }
    p.backward({something});
    expect_near(p[0].grad().to_vector<double>(), something.to_vector<double>(), 1e-14);
  });
}

TEST(PowerSgd, NonFiniteGradientsDoNotAffectLaterSteps) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    run_threads(rank_devices(3), [&](Context& context) {
      const HookedParameters p({{20, 24}, {3}}, kFloat64, context.device());
      GradientReducer reducer(p.named(), {}, context.group(), {.hooks = {power_sgd({.rank = 2, .start_step = 0})}});
      const Tensor good = product_of_rank(2, 20, 24, 3);
      const Tensor three = ones({3}, {kFloat64});
      p.backward(context.rank(), 1);  // leaves an error
      const Tensor broken = good.clone();
      if (context.rank() == 1) primitives::fill(broken[0].slice(0, 7, 8), bad);
      p.backward({broken, three});
      for (const double v : p[0].grad().to_vector<double>()) EXPECT_FALSE(std::isfinite(v));
      EXPECT_EQ(p[1].grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
      p.backward({good, three});
      expect_near(p[0].grad().to_vector<double>(), good.to_vector<double>(), 1e-14);
    });
  }
}

}}  // namespace tandem::distributed
