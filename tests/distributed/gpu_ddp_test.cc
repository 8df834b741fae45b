// Data-parallel training on GPUs equals one process on the whole batch. Ranks are threads with one GPU each, or
// processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/gather_trace.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/distributed/gpu_contexts.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;

constexpr BucketSizes kTiny = {64, 64, 64};
constexpr BucketSizes kHuge = {1 << 30, 1 << 30, 1 << 30};
constexpr int kSteps = 5;

std::vector<Device> gpus(int count) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) all.push_back(Device::cuda(i));
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e300;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

struct Buckets {
  const char* name;
  BucketSizes sizes;
};
class GpuDdpWorldSizes : public ::testing::TestWithParam<std::tuple<int, Buckets>> {};

TEST_P(GpuDdpWorldSizes, TrainingMatchesSingleProcessOnFullBatch) {
  const auto [world, buckets] = GetParam();
  const std::vector<double> expected = joined_batch(kSteps);
  run_threads(gpus(world), [&, sizes = buckets.sizes](Context& context) {
    EXPECT_LT(largest_difference(part_of_batch(context, kSteps, sizes), expected), 1e-12);
  });
}

// tools/gpu_checks selects tests by these names.
INSTANTIATE_TEST_SUITE_P(
    , GpuDdpWorldSizes,
    ::testing::Combine(::testing::Values(1, 2, 4),
                       ::testing::Values(Buckets{"Tiny", kTiny}, Buckets{"Usual", {}}, Buckets{"Huge", kHuge})),
    [](const auto& world) { return "Of" + std::to_string(std::get<0>(world.param)) + std::get<1>(world.param).name; });

TEST(GpuDdp, CastHooksRoundGradientsWithinTolerance) {
  const std::vector<double> expected = joined_batch(kSteps);
  for (const bool brain : {false, true}) {
    run_threads(gpus(2), [&](Context& context) {
      const double difference = largest_difference(
          part_of_batch(context, kSteps, kTiny, {brain ? bf16_compress() : fp16_compress()}), expected);
      EXPECT_LT(difference, brain ? 2e-2 : 2e-3);
      EXPECT_GT(difference, 1e-9);  // otherwise nothing was rounded
    });
  }
}

TEST(GpuDdpOf4, RanksEndWithBitwiseEqualParameters) {
  std::mutex mutex;
  std::vector<std::vector<double>> results;
  run_threads(gpus(4), [&](Context& context) {
    const std::vector<double> mine = part_of_batch(context, 2, kTiny);
    std::lock_guard lock(mutex);
    results.push_back(mine);
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(GpuDdp, PartiallyUsedParameterIsAveragedOverAllRanks) {
  run_threads(gpus(2), [](Context& context) {
    const TensorOptions options{kFloat64, context.device()};
    Tensor a = ones({3}, options).requires_grad_();
    Tensor b = ones({2}, options).requires_grad_();
    GradientReducer reducer({{"a", a}, {"b", b}}, {}, context.group(), {.unused = UnusedParameters::kAllow});
    Tensor loss = a.sum();
    if (context.rank() == 1) loss = add(loss, mul(b, Scalar(8)).sum());
    loss.backward();
    EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{4, 4}));
  });
}

/// Averages a bucket with two all-reduces, and counts completed first all-reduces.
class Twice final : public CommHook {
 public:
  std::string describe() const override { return "twice"; }
  int num_all_reduces(const GradBucket& /*bucket*/) const override { return 2; }
  void average(const GradBucket& bucket, const AllReduceMean& next, std::function<void()> done) override {
    next(bucket.values, [this, next, values = bucket.values, done] {
      ++came_back;
      next(values, done);
    });
  }
  std::atomic<int> came_back{0};
};

// Tensors that the GPU may read are kept until the end of the step, or until the step fails.
TEST(GpuDdp, FailedStepReleasesItsCommHook) {
  std::barrier<> both(2);
  run_threads(gpus(2), [&](Context& context) {
    std::weak_ptr<Twice> left;
    {
      const auto hook = std::make_shared<Twice>();
      left = hook;
      const HookedParameters p({{40, 4}, {50, 3}, {60, 2}}, kFloat32, context.device());
      GradientReducer reducer(many_modules(p), {}, context.group(), {.buckets = kTiny, .hooks = {hook}});
      p.backward(context.rank(), 0);
      const int in_a_step = hook->came_back;
      EXPECT_GT(in_a_step, 1);
      int gradients = 0;
      std::vector<HookHandle> handles;
      for (size_t i = 0; i < 3; ++i) {
        handles.push_back(p[i].register_post_accumulate_grad_hook([&](const Tensor&) {
          if (++gradients < 3) return;
          while (hook->came_back == in_a_step) std::this_thread::yield();  // a bucket is in flight
          both.arrive_and_wait();
          throw ValueError("no more");
        }));
      }
      EXPECT_EQ(error_text<ValueError>([&] { p.backward(context.rank(), 1); }), "no more");
    }
    context.group()->abort("over");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!left.expired() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(left.expired());
  });
}

/// One step of rank 0 of 2: its trace, and a lower bound for the time of the last gradient on its GPU.
struct TracedStep {
  std::vector<TraceEvent> events;
  int64_t last_gradient_ns = 0;
};

TracedStep traced_step() {
  TracedStep step;
  start_trace();
  run_threads(gpus(2), [&](Context& context) {
    const Device device = context.device();
    const Net net(1, device);
    const GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    const cuda::Stream stream = cuda::current_stream(device);
    const cuda::Event origin(device, true), last(device, true);
    const int64_t origin_ns = trace_now_ns();  // recorded first, so that the bound is never too late
    origin.record(stream);
    stream.synchronize();
    std::vector<HookHandle> hooks;
    for (const Tensor& p : net.parameters()) {
      hooks.push_back(p.register_post_accumulate_grad_hook([&](const Tensor&) { last.record(stream); }));
    }
    const int64_t share = kItems / 2;
    net.loss(inputs().slice(0, 0, share).to(device), labels().slice(0, 0, share).contiguous().to(device)).backward();
    stream.synchronize();
    if (context.rank() == 0)
      step.last_gradient_ns = origin_ns + static_cast<int64_t>(last.milliseconds_since(origin) * 1e6);
  });
  for (TraceEvent& event : stop_trace()) {
    if (event.rank == 0) step.events.push_back(std::move(event));
  }
  return step;
}

// On the GPU the all-reduce of the first bucket starts before the last gradient is computed.
TEST(GpuDdp, FirstBucketStartsBeforeLastGradient) {
  bool overlaps = false;
  for (int attempt = 0; attempt < 3 && !overlaps;
       ++attempt) {  // the machine may have stood still while clocks were compared
    const TracedStep step = traced_step();
    int travelled = 0, checks = 0;
    int64_t first_ns = 0;
    for (const TraceEvent& event : step.events) {
      if (event.name.find("bucket") == std::string::npos) continue;
      checks += event.category == "consistency check";
      if (event.category != "comm" || event.thread != kNcclStreamThread) continue;
      ++travelled;
      if (event.name.starts_with("bucket 0 ")) first_ns = event.begin_ns;
    }
    EXPECT_GE(checks, 2);
    EXPECT_EQ(travelled, checks);
    EXPECT_NE(first_ns, 0);
    overlaps = first_ns < step.last_gradient_ns;
  }
  EXPECT_TRUE(overlaps);
}

// Measured with GPU timestamps; "stolen" counts only CPU time.
TEST(GpuDdp, OverlapReportTimesAddUp) {
  run_threads(gpus(2), [](Context& context) {
    const Net net(1, context.device());
    const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
    GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) net.loss(x, y).backward();
    };
    const auto begin = std::chrono::steady_clock::now();
    train(4);
    const OverlapReport report = reducer.report();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(report.steps, 3);
    EXPECT_GT(report.comm_ms, 0);
    EXPECT_GE(report.exposed_ms, 0);
    EXPECT_EQ(report.stolen_ms, 0);
    EXPECT_GT(report.local_ms, 0);
    EXPECT_NEAR(report.step_ms, report.local_ms + report.exposed_ms + report.stolen_ms, 1e-9);
    EXPECT_LT(3 * report.step_ms, took.count());
    EXPECT_LT(report.comm_ms, took.count());

    reducer.reset_report();
    EXPECT_EQ(reducer.report().steps, 0);
    train(2);
    reducer.exclude_step();
    train(3);
    EXPECT_EQ(reducer.report().steps, 3);
  });
}

/// Writes the number of rank 0's steps in which an all-reduce overlapped with computation, and the number of transfers
/// per rank.
TANDEM_RANK_MAIN(trace_steps) {
  constexpr int kTraced = 4;
  const Device device = gpu_of_rank(context.rank());
  const Net net(1, device);
  const GradientReducer reducer(net.named(), {}, context.group(), {.buckets = kTiny});
  const int64_t share = kItems / 2;
  const Tensor x = inputs().slice(0, 0, share).to(device), y = labels().slice(0, 0, share).contiguous().to(device);
  start_trace();
  for (int step = 0; step < kTraced; ++step) net.loss(x, y).backward();
  if (reducer.report().steps != kTraced - 1) throw StateError("other steps");  // the trace would contain them
  const std::vector<TraceEvent> events = gather_trace(*context.group());
  if (context.rank() != 0) return;
  std::map<int, int> transfers;
  int overlapped = 0;
  for (const TraceEvent& event : events) {
    transfers[event.rank] += event.thread == kNcclStreamThread;
    if (event.rank != 0 || event.name != "computes") continue;
    if (event.thread != kGpuStepThread) throw StateError("another row");
    overlapped += std::any_of(events.begin(), events.end(), [&](const TraceEvent& other) {
      return other.rank == 0 && other.thread == kNcclStreamThread && other.begin_ns > event.begin_ns &&
             other.begin_ns < event.end_ns;
    });
  }
  std::ofstream(args.at(0)) << overlapped << " " << transfers[0] << " " << transfers[1];
}

TEST(GpuDdp, TraceOfProcessesShowsOverlap) {
  const testing::TemporaryFolder folder;
  int overlapped = 0, transfers = 0, others = 0;
  for (int attempt = 0; attempt < 3 && overlapped == 0; ++attempt) {  // the machine may be loaded
    spawn(2, "trace_steps", {folder / "trace"});
    std::istringstream(testing::read_file(folder / "trace")) >> overlapped >> transfers >> others;
    EXPECT_GE(transfers, 8);  // at least two buckets per step
    EXPECT_EQ(transfers, others);
  }
  EXPECT_GT(overlapped, 0);
}

TANDEM_RANK_MAIN(train_on_gpus) {
  const Device device = gpu_of_rank(context.rank());
  const std::vector<double> got = part_of_batch(context, kSteps, kTiny, {}, device);
  check_no_other_gpu(device);
  if (largest_difference(got, joined_batch(kSteps)) > 1e-12) throw StateError("other parameters");
}

TEST(GpuDdp, ProcessesMatchSingleProcessTraining) { spawn(2, "train_on_gpus"); }

TEST(GpuDdpOf4, ProcessesMatchSingleProcessTraining) { spawn(4, "train_on_gpus"); }

}}  // namespace tandem::distributed
