// States, traffic and memory of a DistributedDataParallel whose ranks divide state. On CPUs and GPUs.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/trace.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tests/distributed/hooked_parameters.h>
#include <tandem/tests/distributed/sharded_training.h>

namespace tandem::distributed { namespace {

using testing::rank_devices;

/// A training after some steps: values of the parameters, and the optimizer's state with the pieces of all ranks.
struct Snapshot {
  std::vector<double> values;
  State optimizer;
};

/// Trains two steps, from `start` if it is given.
Snapshot train_on(int world, Shard level, const Snapshot* start, DType dtype) {
  std::vector<State> states(static_cast<size_t>(world));
  Snapshot result;
  run_threads(rank_devices(world), [&](Context& context) {
    Training t(context, {.shard = level}, dtype);
    t.optimizer = adamw(t.net);
    if (start != nullptr) {
      const HookHandle whole = t.reducer->gathered();
      const double* from = start->values.data();
      for (const Tensor& parameter : t.net.parameters()) {
        const NoGradGuard no_grad;
        parameter.copy_(
            from_vector(std::vector<double>(from, from + parameter.numel()), parameter.shape()).to(parameter.device()));
        from += parameter.numel();
      }
      t.optimizer->load_state_dict(start->optimizer);
    }
    for (int step = 0; step < 2; ++step) plain_step(t);
    states[static_cast<size_t>(context.rank())] = copy_of(t.optimizer->state_dict());
    const std::vector<double> values = t.values();
    if (context.rank() == 0) result.values = values;
  });
  result.optimizer = merge_pieces(states[0], states);
  return result;
}

TEST(ShardingState, LoadsAtEveryNumberOfRanksAndLevel) {
  for (const DType dtype : {kFloat64, kBFloat16}) {  // with and without masters
    for (const int saved_by : worlds()) {
      const Snapshot whole = train_on(saved_by, Shard::kNone, nullptr, dtype);
      for (const int loaded_by : worlds()) {
        const std::vector<double> expected = train_on(loaded_by, Shard::kNone, &whole, dtype).values;
        for (const Shard before : kAllLevels) {
          const Snapshot snapshot = train_on(saved_by, before, nullptr, dtype);
          const Shard after = kAllLevels[(static_cast<size_t>(before) + static_cast<size_t>(saved_by + loaded_by)) % 4];
          EXPECT_EQ(train_on(loaded_by, after, &snapshot, dtype).values, expected)
              << saved_by << " ranks with " << to_string(before) << " to " << loaded_by << " with " << to_string(after);
        }
      }
    }
  }
}

TEST(ShardingTraffic, IsThatOfAnAllReduceInTwoHalves) {
  run_threads(3, [](Context& context) {
    for (const Shard level : {Shard::kOptimizer, Shard::kGradients}) {
      Training t(context, {.shard = level});
      t.optimizer = sgd(t.net);
      plain_step(t);
      context.group()->barrier();
      if (context.rank() == 0) start_trace();
      context.group()->barrier();
      plain_step(t);
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

/// Bytes on the rank's device: after construction, and the peak of three steps.
struct Memory {
  int64_t constructed, peak;
};

Memory memory_of(Context& context, Shard level, int num_layers, int64_t n) {
  const Device device = context.device();
  const HookedParameters parameters(std::vector<Shape>(static_cast<size_t>(num_layers), Shape{n}), kFloat32, device);
  std::vector<Tensor> all;
  for (size_t i = 0; i < static_cast<size_t>(num_layers); ++i) all.push_back(parameters[i]);
  const auto meet = [&] {
    if (!device.is_cpu()) cuda::synchronize(device);
    context.group()->barrier();
  };
  meet();
  GradientReducer reducer(many_modules(parameters), {}, context.group(), {.buckets = {1, n * 4, 1}, .shard = level});
  optim::AdamW adam(all, {.lr = 1e-3});
  meet();
  const int64_t constructed = memory_stats(device).allocated;
  meet();
  reset_peak_memory(device);
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
  constexpr int kRanks = 4, kLayers = 24;
  const int64_t layer_bytes = testing::test_device().is_cpu() ? 1 << 20 : 1 << 17;  // emulated GPUs are slow
  run_threads(rank_devices(kRanks), [&](Context& context) {
    const Device device = context.device();
    const double sharing = device.is_cpu() ? kRanks : 1;  // ranks whose memory is counted together
    const auto bytes = [&](double copies) { return copies * sharing * kLayers * static_cast<double>(layer_bytes); };
    context.group()->barrier();
    const auto before = static_cast<double>(memory_stats(device).allocated);
    context.group()->barrier();
    struct Expected {
      Shard level;
      double constructed, peak;  // copies of the parameters
    };
    // Whole parameters, gradients and two moments. kGradients has at most two buckets in flight and one that backward
    // fills; with kNone gradients exist from the construction on.
    const double n = kRanks, layer = 1.0 / kLayers;
    for (const auto& [level, constructed, peak] :
         {Expected{Shard::kNone, 2, 4}, Expected{Shard::kOptimizer, 1, 2 + 2 / n},
          Expected{Shard::kGradients, 1, 1 + 3 / n + 3 * layer}}) {
      const Memory memory = memory_of(context, level, kLayers, layer_bytes / 4);
      EXPECT_NEAR(static_cast<double>(memory.constructed) - before, bytes(constructed), 0.05 * bytes(constructed))
          << to_string(level);
      EXPECT_NEAR(static_cast<double>(memory.peak) - before, bytes(peak), 0.05 * bytes(peak)) << to_string(level);
      context.group()->barrier();
    }
  });
}

}}  // namespace tandem::distributed
