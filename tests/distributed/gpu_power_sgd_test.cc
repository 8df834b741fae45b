// PowerSGD on GPUs equals PowerSGD on CPUs up to rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/distributed/hooked_parameters.h>

namespace tandem::distributed { namespace {

constexpr BucketSizes kTiny = {64, 64, 64};
constexpr int kSteps = 3;

/// Gradients of all steps on rank 0, by parameter, followed by the remaining errors.
std::vector<double> averages(const std::vector<Device>& devices, DType dtype, const PowerSgdOptions& options,
                             bool through_bf16) {
  std::vector<double> all;
  run_threads(devices, [&](Context& context) {
    // Buckets are opened by the thread that completes an all-reduce, which does not know the compute stream.
    std::optional<cuda::StreamGuard> own;
    if (!context.device().is_cpu()) own.emplace(cuda::Stream(context.device()));
    // More rows and columns than a block of the kernels, and uncompressed parameters.
    HookedParameters p({{70, 100}, {7}, {1, 33}, {300, 3, 11}, {40, 1}, {12, 1100}}, dtype, context.device());
    CommHooks hooks = {power_sgd(options)};
    if (through_bf16) hooks.push_back(bf16_compress());
    GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = hooks});
    std::vector<double> mine;
    const auto add = [&](const Tensor& tensor) {
      for (const double v : HookedParameters::values_of(tensor)) mine.push_back(v);
    };
    for (int step = 0; step < kSteps; ++step) {
      p.backward(context.rank(), step);
      for (size_t i = 0; i < 6; ++i) add(p[i].grad());
    }
    const State state = reducer.state_dict();
    for (const size_t i : {0, 3, 5}) add(state.get<Tensor>(str("hook 0.memory.layer", i, ".weight.error")));
    if (context.rank() == 0) all = mine;
  });
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return a.size() == b.size() ? std::sqrt(difference / size) : std::numeric_limits<double>::infinity();
}

struct Case {
  const char* name;
  DType dtype;
  double tolerance;
  bool through_bf16 = false;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

class GpuPowerSgd : public ::testing::TestWithParam<Case> {};

TEST_P(GpuPowerSgd, GradientsMatchCpuWithinTolerance) {
  const Case& c = GetParam();
  for (const int rank : {1, 2, 6}) {
    const PowerSgdOptions options = {.rank = rank, .start_step = 1, .min_saving = 1};
    const auto gpu = averages({Device::cuda(0), Device::cuda(1)}, c.dtype, options, c.through_bf16);
    const auto cpu = averages({Device(), Device()}, c.dtype, options, c.through_bf16);
    EXPECT_LT(distance(gpu, cpu), c.tolerance) << "rank " << rank;
    EXPECT_GT(std::abs(cpu.back()), 1e-6);  // the error is not zero
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuPowerSgd,
                         ::testing::Values(Case{"float64", kFloat64, 1e-12}, Case{"float32", kFloat32, 1e-4},
                                           Case{"bfloat16", kBFloat16, 5e-2}, Case{"float16", kFloat16, 1e-2},
                                           Case{"float32_through_bfloat16", kFloat32, 5e-2, true}),
                         case_name);

// As with SyncBatchNorm in a separate group: collectives of all groups must start in one order on GPUs, which is
// program order, independent of when ranks agree on a bucket.
TEST(GpuPowerSgdRanks, OtherGroupsAllReduceDuringBackward) {
  run_threads({Device::cuda(0), Device::cuda(1)}, [](Context& context) {
    const auto other = context.new_group({0, 1}, {.timeout = std::chrono::seconds(20)});
    const HookedParameters p({{20, 10}, {30, 8}, {40, 6}, {12, 12}, {9, 30}}, kFloat32, context.device());
    const CommHooks hooks = {power_sgd({.rank = 1, .start_step = 0, .min_saving = 1})};
    GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = hooks});
    const Tensor sum = zeros({1}, {kFloat32, context.device()});
    std::vector<HookHandle> handles;
    for (size_t i = 0; i < 5; ++i) {
      handles.push_back(p[i].register_post_accumulate_grad_hook([&](const Tensor&) { other->all_reduce(sum); }));
    }
    for (int step = 0; step < 30; ++step) {
      sum.fill_(1);
      p.backward(context.rank(), step);
      ASSERT_EQ(sum.item<float>(), 32);
    }
  });
}

TEST(GpuPowerSgdRanks, RanksEndWithBitwiseEqualParameters) {
  std::mutex mutex;
  std::vector<std::vector<double>> results;
  run_threads({Device::cuda(0), Device::cuda(1), Device::cuda(2), Device::cuda(3)}, [&](Context& context) {
    const auto hook = power_sgd({.rank = 1, .start_step = 1, .min_saving = 1});
    const std::vector<double> mine = part_of_batch(context, 6, kTiny, {hook});
    std::lock_guard lock(mutex);
    results.push_back(mine);
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  const std::vector<double> exact = joined_batch(6);
  EXPECT_GT(distance(results[0], exact), 1e-6);
  EXPECT_LT(distance(results[0], exact), 0.5);
}

}}  // namespace tandem::distributed
