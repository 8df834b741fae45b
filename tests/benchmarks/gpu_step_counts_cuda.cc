// Counts the kernels, copies and event calls of one warm training step of each case of //benchmarks:train_step on a GPU. The emulated
// GPU counts kernels without running them.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cuda_emulation/control.h>
#include <gtest/gtest.h>

#include <tandem/tests/benchmarks/step_counts.h>

namespace tandem::testing { namespace {

using benchmarks::TrainingCase;
using cuda_emulation::CallCounts;

const Device kGpu("cuda");

CallCounts calls_of(const std::function<void()>& f) {
  const CallCounts before = cuda_emulation::call_counts();
  f();
  CallCounts counts = cuda_emulation::call_counts();
  counts.kernels -= before.kernels;
  counts.memory_tasks -= before.memory_tasks;
  counts.event_records -= before.event_records;
  counts.event_waits -= before.event_waits;
  counts.graph_launches -= before.graph_launches;
  counts.synchronizations -= before.synchronizations;
  return counts;
}

void append(std::vector<Count>& counts, const std::string& prefix, const CallCounts& calls) {
  for (const auto& [name, value] :
       {Count{"kernels", calls.kernels}, Count{"copies and fills", calls.memory_tasks},
        Count{"event records", calls.event_records}, Count{"event waits", calls.event_waits},
        Count{"graph launches", calls.graph_launches}, Count{"synchronizations", calls.synchronizations}}) {
    if (value != 0) counts.push_back({prefix + ", " + name, value});
  }
}

class GpuStepCounts : public ::testing::Test {
 protected:
  void SetUp() override { cuda_emulation::set_kernels_run(false); }
  void TearDown() override { cuda_emulation::set_kernels_run(true); }

  static void check(const std::string& name, const std::string& table) {
    set_num_threads(1);
    manual_seed(1);
    TrainingCase training = benchmarks::make_case(name);
    if (name != "mlp") limit_data(training, 1);
    benchmarks::move_case(training, kGpu);
    const auto step = [&] { training.step(); };
    std::vector<Count> counts = count_step(step, kGpu);

    append(counts, "zero_grad", calls_of([&] { training.optimizer->zero_grad(); }));
    std::optional<Tensor> loss;
    append(counts, "forward", calls_of([&] { loss = training.loss(); }));
    append(counts, "backward", calls_of([&] { loss->backward(); }));
    append(counts, "optimizer", calls_of([&] { training.optimizer->step(); }));
    loss.reset();

    cuda::Graph graph(kGpu);
    graph.capture(step);
    append(counts, "replay", calls_of([&] { graph.replay(); }));
    cuda::synchronize(kGpu);
    expect_counts(name, table, counts);
  }
};

TEST_F(GpuStepCounts, Mlp) { check("mlp", R"()"); }
TEST_F(GpuStepCounts, Lenet) { check("lenet", R"()"); }
TEST_F(GpuStepCounts, Resnet18) { check("resnet18", R"()"); }
TEST_F(GpuStepCounts, GptSmall) { check("gpt-small", R"()"); }
TEST_F(GpuStepCounts, Gpt384) { check("gpt-384", R"()"); }

}}  // namespace tandem::testing
