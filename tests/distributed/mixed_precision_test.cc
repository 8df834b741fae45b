// Training in float16: scaled losses, averaged gradients, and one decision per step on all ranks. On CPUs and GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <tandem/distributed/launch.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::distributed { namespace {

using testing::rank_devices;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

optim::GradScalerOptions shared_over(const std::shared_ptr<ProcessGroup>& group) {
  return {.all_reduce_found_inf = [group](const Tensor& found) { group->all_reduce(found, ReduceOp::kMax); }};
}

struct Part {
  Tensor x, y;
};

/// The part of the batch of this rank.
Part part_of(const Context& context, DType dtype) {
  const int64_t share = kItems / context.world_size(), begin = context.rank() * share;
  return {inputs().slice(0, begin, begin + share).to(context.device()).to(dtype),
          labels().slice(0, begin, begin + share).contiguous().to(context.device())};
}

TEST(MixedPrecision, Float16TrainingSkipsOverflowStepOnAllRanks) {
  constexpr int kSteps = 40, kBroken = 17;
  run_threads(rank_devices(2), [](Context& context) {
    const Net net(1, context.device(), kFloat32);
    GradientReducer reducer(net.named(), {}, context.group());
    optim::SGD sgd(net.parameters(), kSgd);
    optim::GradScaler scaler(shared_over(context.group()));
    const Part part = part_of(context, kFloat32);
    double first = 0, last = 0;
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      Tensor loss;
      {
        const Autocast half(kFloat16);
        EXPECT_EQ(linear(part.x, net.w1, net.b1).dtype(), kFloat16);
        loss = net.loss(part.x, part.y);
      }
      last = loss.item();
      if (step == 0) first = last;
      // Multiplied by the scale it overflows float16.
      scaler.backward(step == kBroken && context.rank() == 1 ? mul(loss, Scalar(1e4)) : loss);
      const std::vector<double> before = all_values(net);
      EXPECT_EQ(scaler.step(sgd), step != kBroken) << "step " << step << " of rank " << context.rank();
      EXPECT_EQ(all_values(net) == before, step == kBroken) << "step " << step << " of rank " << context.rank();
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), step < kBroken ? 65536 : 32768);
    }
    EXPECT_LT(last, 0.8 * first);
  });
}

// A non-finite gradient found by one rank skips the step on all ranks.
TEST(MixedPrecision, InfinityOnOneRankSkipsStepEverywhere) {
  run_threads(rank_devices(4), [](Context& context) {
    const Net net(1, context.device(), kFloat32);
    optim::SGD sgd(net.parameters(), kSgd);
    optim::GradScaler scaler(shared_over(context.group()));
    const Part part = part_of(context, kFloat32);
    const std::vector<double> before = all_values(net);
    scaler.backward(net.loss(part.x, part.y));
    if (context.rank() == 2) primitives::fill(net.b1.grad().slice(0, 7, 8), kInfinity);
    EXPECT_FALSE(scaler.step(sgd));
    scaler.update();
    EXPECT_EQ(all_values(net), before);
    EXPECT_EQ(scaler.get_scale(), 32768);
  });
}

// Scaling by a power of two changes no bit of the result.
TEST(MixedPrecision, LossScalingDoesNotChangeBits) {
  constexpr int kSteps = 5;
  run_threads(rank_devices(2), [](Context& context) {
    const std::vector<double> expected = part_of_batch(context, kSteps, {64, 64, 64});
    const Net net(1, context.device());
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = {64, 64, 64}});
    optim::SGD sgd(net.parameters(), kSgd);
    optim::GradScaler scaler(shared_over(context.group()));
    const Part part = part_of(context, kFloat64);
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      scaler.backward(net.loss(part.x, part.y));
      EXPECT_TRUE(scaler.step(sgd));
      scaler.update();
    }
    EXPECT_EQ(all_values(net), expected);
  });
}

/// |a - b| in units in the last place of a in `dtype`.
double in_gaps(double a, double b, DType dtype) {
  const double gap = std::ldexp(testing::epsilon(dtype), std::max(std::ilogb(a), dtype == kFloat16 ? -14 : -126));
  return std::abs(a - b) / gap;
}

/// Maximum error of rank 0's means in units in the last place.
double worst_rounding(DType dtype, const std::function<CommHooks()>& make_hooks) {
  constexpr int kWorld = 4;
  double worst = 0;
  run_threads(rank_devices(kWorld), [&](Context& context) {
    const HookedParameters p({{33, 31}, {7}}, dtype, context.device());
    GradientReducer reducer(p.named(), {}, context.group(), {.buckets = {64, 64, 64}, .hooks = make_hooks()});
    p.backward(context.rank(), 0);
    if (context.rank() != 0) return;
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<double> got = HookedParameters::values_of(p[i].grad()), exact = p.mean(i, kWorld, 0);
      for (size_t j = 0; j < got.size(); ++j) worst = std::max(worst, in_gaps(exact[j], got[j], dtype));
    }
  });
  return worst;
}

TEST(MixedPrecision, Fp32HookRoundsHalfGradientMeansOnce) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    EXPECT_LE(worst_rounding(dtype, [] { return CommHooks{fp32_upcast()}; }), 0.501) << dtype;
    EXPECT_LE(worst_rounding(dtype,
                             [] {
                               return CommHooks{power_sgd({.start_step = 1}), fp32_upcast()};
                             }),
              0.501)
        << dtype;
    const double without = worst_rounding(dtype, [] { return CommHooks(); });
    if (testing::test_device().is_cpu()) {
      EXPECT_LE(without, 0.501) << dtype;
    } else {
      EXPECT_GT(without, 0.6) << dtype;  // without the hook, NCCL's rounding is worse
    }
  }
}

TEST(MixedPrecision, Fp32HookKeepsBitsOfWiderTypes) {
  run_threads(rank_devices(2), [](Context& context) {
    EXPECT_EQ(part_of_batch(context, 3, {64, 64, 64}, {fp32_upcast()}), part_of_batch(context, 3, {64, 64, 64}));
  });
}

}}  // namespace tandem::distributed
