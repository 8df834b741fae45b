// Counts the kernels, copies and event calls of one warm training step of each case of //benchmarks:train_step on a
// GPU. The emulated GPU counts kernels without running them.
#include <cuda_emulation/control.h>

#include <tandem/tests/benchmarks/step_counts.h>
#include <tandem/tests/support/test.h>

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
    std::erase_if(counts, [](const Count& count) { return count.name == "heap allocations"; });  // the emulation's too

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

TEST_F(GpuStepCounts, Mlp) {
  check("mlp", R"(
blocks 19; system allocations 0; peak bytes 36175936; backward backward 1; backward cross_entropy 1; backward linear 1;
backward linear_relu 2; backward reshape 1; copy fill 1; copy fill, bytes 4; op cross_entropy 1; op linear 1;
op linear_relu 2; algorithm SGD in optimizer optimizer step 1; forward, kernels 5; forward, copies and fills 3;
backward, kernels 5; backward, copies and fills 5; optimizer, kernels 1; replay, kernels 1; replay, graph launches 1;
)");
}

TEST_F(GpuStepCounts, Lenet) {
  check("lenet", R"(
blocks 33; system allocations 0; peak bytes 42120256; backward backward 1; backward clone 1; backward conv2d_relu 2;
backward cross_entropy 1; backward flatten 1; backward linear 1; backward linear_relu 1; backward max_pool2d 2;
backward reshape 1; copy copy 2; copy copy, bytes 16384; copy fill 1; copy fill, bytes 4; op clone 1; op conv2d_relu 2;
op cross_entropy 1; op linear 1; op linear_relu 1; op max_pool2d 2; algorithm SGD in optimizer optimizer step 1;
forward, kernels 10; forward, copies and fills 3; backward, kernels 13; backward, copies and fills 6;
optimizer, kernels 1; replay, kernels 1; replay, graph launches 1;
)");
}

TEST_F(GpuStepCounts, Resnet18) {
  check("resnet18", R"(
blocks 267; system allocations 0; peak bytes 63534144; backward adaptive_avg_pool2d 1; backward backward 1;
backward batch_norm 3; backward batch_norm_add_relu 8; backward batch_norm_relu 9; backward conv2d 20;
backward cross_entropy 1; backward flatten 1; backward linear 1; backward reshape 1; copy add_into 1;
copy add_into, bytes 786432; copy copy 2; copy copy, bytes 49152; copy fill 1; copy fill, bytes 4;
op adaptive_avg_pool2d 1; op add_ 20; op batch_norm 3; op batch_norm_add_relu 8; op batch_norm_relu 9; op conv2d 20;
op cross_entropy 1; op linear 1; algorithm SGD in optimizer optimizer step 1; forward, kernels 105;
forward, copies and fills 21; backward, kernels 105; backward, copies and fills 41; optimizer, kernels 1;
replay, kernels 1; replay, graph launches 1;
)");
}

TEST_F(GpuStepCounts, GptSmall) {
  check("gpt-small", R"(
blocks 158; system allocations 0; peak bytes 35830336; backward add 5; backward add_layer_norm 8; backward backward 1;
backward cross_entropy 1; backward embedding 2; backward gelu 4; backward layer_norm 5; backward linear 13;
backward linear_gelu 4; backward qkv_attention 4; backward reshape 1; copy add_into 1; copy add_into, bytes 99840;
copy fill 1; copy fill, bytes 4; op add 5; op add_layer_norm 4; op cross_entropy 1; op dropout 9; op embedding 2;
op gelu 4; op gelu_backward 4; op layer_norm 5; op linear 13; op linear_gelu 4; op qkv_attention 4; op sum 1;
algorithm AdamW in optimizer optimizer step 1; forward, kernels 30; forward, copies and fills 17; backward, kernels 64;
backward, copies and fills 34; optimizer, kernels 1; replay, kernels 1; replay, graph launches 1;
)");
}

TEST_F(GpuStepCounts, Gpt384) {
  check("gpt-384", R"(
blocks 226; system allocations 0; peak bytes 43707968; backward add 7; backward add_layer_norm 12; backward backward 1;
backward cross_entropy 1; backward embedding 2; backward gelu 6; backward layer_norm 7; backward linear 19;
backward linear_gelu 6; backward qkv_attention 6; backward reshape 1; copy add_into 1; copy add_into, bytes 299520;
copy fill 1; copy fill, bytes 4; op add 7; op add_layer_norm 6; op cross_entropy 1; op dropout 13; op embedding 2;
op gelu 6; op gelu_backward 6; op layer_norm 7; op linear 19; op linear_gelu 6; op qkv_attention 6; op sum 1;
algorithm AdamW in optimizer optimizer step 1; forward, kernels 40; forward, copies and fills 25; backward, kernels 88;
backward, copies and fills 50; optimizer, kernels 1; replay, kernels 1; replay, graph launches 1;
)");
}

}}  // namespace tandem::testing
