// What one warm training step of each case of //benchmarks:train_step does, on one thread and with AVX2 (see the BUILD
// file), and what its gradients' all-reduce adds.
#include <sys/mman.h>

#include <tandem/tests/benchmarks/step_counts.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing { namespace {

using benchmarks::TrainingCase;

/// The case, with one item per step where steps are long: the layers are those of the case.
TrainingCase make_case(const std::string& name) {
  manual_seed(1);
  TrainingCase training = benchmarks::make_case(name);
  if (name == "resnet18" || name.starts_with("gpt")) limit_data(training, 1);
  return training;
}

void check_step(const std::string& name, const std::string& table) {
  set_num_threads(1);
  TrainingCase training = make_case(name);
  const auto step = [&] { training.step(); };
  std::vector<Count> counts = count_step(step, Device());
  counts.push_back({"page faults", count_page_faults(step)});
  expect_counts(name, table, counts);
}

TEST(StepCounts, Mlp) {
  check_step("mlp", R"(
heap allocations 66; blocks 19; system allocations 0; peak bytes 3670080; backward backward 1; backward cross_entropy 1;
backward linear 1; backward linear_relu 2; backward reshape 1; copy fill 1; copy fill, bytes 4; op cross_entropy 1;
op linear 1; op linear_relu 2; algorithm SGD in optimizer optimizer step 1; algorithm avx2 in backward linear 2;
algorithm avx2 in backward linear_relu 3; algorithm avx2 in op linear 1; algorithm avx2 swapped in op linear_relu 2;
page faults 0;
)");
}
TEST(StepCounts, Lenet) {
  check_step("lenet", R"(
heap allocations 114; blocks 33; system allocations 0; peak bytes 16646208; backward backward 1; backward clone 1;
backward conv2d_relu 2; backward cross_entropy 1; backward flatten 1; backward linear 1; backward linear_relu 1;
backward max_pool2d 2; backward reshape 1; copy copy 2; copy copy, bytes 1048576; copy fill 1; copy fill, bytes 4;
op clone 1; op conv2d_relu 2; op cross_entropy 1; op linear 1; op linear_relu 1; op max_pool2d 2;
algorithm SGD in optimizer optimizer step 1; algorithm avx2 in backward linear 2;
algorithm avx2 in backward linear_relu 2; algorithm avx2 in op linear 1; algorithm avx2 swapped in op linear_relu 1;
algorithm tiles avx2 in backward conv2d_relu 1; algorithm tiles avx2 in op conv2d_relu 1;
algorithm winograd avx2 in backward conv2d_relu 2; algorithm winograd avx2 in op conv2d_relu 1; page faults 0;
)");
}
TEST(StepCounts, Resnet18) {
  check_step("resnet18", R"(
heap allocations 797; blocks 266; system allocations 0; peak bytes 33894080; backward adaptive_avg_pool2d 1;
backward backward 1; backward batch_norm 3; backward batch_norm_add_relu 8; backward batch_norm_relu 9;
backward conv2d 20; backward cross_entropy 1; backward flatten 1; backward linear 1; backward reshape 1;
copy add_into 1; copy add_into, bytes 786432; copy copy 2; copy copy, bytes 49152; copy fill 1; copy fill, bytes 4;
op adaptive_avg_pool2d 1; op add_ 20; op batch_norm 3; op batch_norm_add_relu 8; op batch_norm_relu 9; op conv2d 20;
op cross_entropy 1; op linear 1; algorithm SGD in optimizer optimizer step 1; algorithm direct in backward linear 2;
algorithm direct in op linear 1; algorithm tiles avx2 in backward conv2d 13; algorithm tiles avx2 in op conv2d 7;
algorithm winograd avx2 in backward conv2d 26; algorithm winograd avx2 in op conv2d 13; page faults 0;
)");
}
TEST(StepCounts, GptSmall) {
  check_step("gpt-small", R"(
heap allocations 586; blocks 162; system allocations 0; peak bytes 2538048; backward add 5; backward add_layer_norm 8;
backward backward 1; backward cross_entropy 1; backward embedding 2; backward gelu 4; backward layer_norm 5;
backward linear 13; backward linear_gelu 4; backward qkv_attention 4; backward reshape 1; copy add_into 1;
copy add_into, bytes 99840; copy fill 1; copy fill, bytes 4; op add 5; op add_layer_norm 4; op cross_entropy 1;
op dropout 9; op embedding 2; op gelu 4; op gelu_backward 4; op layer_norm 5; op linear 13; op linear_gelu 4;
op qkv_attention 4; op sum 1; algorithm AdamW in optimizer optimizer step 1; algorithm avx2 in backward linear 26;
algorithm avx2 in backward linear_gelu 4; algorithm avx2 in backward qkv_attention 4;
algorithm avx2 in op qkv_attention 4; algorithm avx2 swapped in backward linear_gelu 4;
algorithm avx2 swapped in op linear 13; algorithm avx2 swapped in op linear_gelu 4; page faults 0;
)");
}
TEST(StepCounts, Gpt384) {
  check_step("gpt-384", R"(
heap allocations 840; blocks 232; system allocations 0; peak bytes 11202112; backward add 7; backward add_layer_norm 12;
backward backward 1; backward cross_entropy 1; backward embedding 2; backward gelu 6; backward layer_norm 7;
backward linear 19; backward linear_gelu 6; backward qkv_attention 6; backward reshape 1; copy add_into 1;
copy add_into, bytes 299520; copy fill 1; copy fill, bytes 4; op add 7; op add_layer_norm 6; op cross_entropy 1;
op dropout 13; op embedding 2; op gelu 6; op gelu_backward 6; op layer_norm 7; op linear 19; op linear_gelu 6;
op qkv_attention 6; op sum 1; algorithm AdamW in optimizer optimizer step 1; algorithm avx2 in backward linear 38;
algorithm avx2 in backward linear_gelu 6; algorithm avx2 in backward qkv_attention 6;
algorithm avx2 in op qkv_attention 6; algorithm avx2 swapped in backward linear_gelu 6;
algorithm avx2 swapped in op linear 19; algorithm avx2 swapped in op linear_gelu 6; page faults 0;
)");
}

/// The counter of page faults works here.
TEST(PageFaults, NewMemoryIsCounted) {
  constexpr size_t kBytes = size_t{64} << 12;
  EXPECT_GE(count_page_faults([] {
              void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              ASSERT_NE(memory, MAP_FAILED);
              for (size_t i = 0; i < kBytes; i += 4096) static_cast<volatile std::byte*>(memory)[i] = std::byte{1};
              munmap(memory, kBytes);
            }),
            1);
}

/// Collectives, their algorithms, and copies of rank 0 of two ranks. Gradients are views of buckets: the copies are
/// those of a step on one rank, and of the control record.
void check_ddp_step(const std::string& name, const std::string& table,
                    distributed::Shard shard = distributed::Shard::kNone) {
  std::vector<Count> counts;
  distributed::run_threads(2, [&](distributed::Context& context) {
    set_num_threads(1);
    TrainingCase training = make_case(name);
    const DistributedDataParallel<nn::Module> ddp(*training.model, context.group(), {.shard = shard});
    for (int i = 0; i < 3; ++i) training.step();
    context.group()->barrier();
    if (context.rank() == 0) start_trace();
    context.group()->barrier();
    training.step();
    context.group()->barrier();
    if (context.rank() != 0) return;
    std::vector<TraceEvent> events;
    std::map<std::string, int64_t> collectives;
    for (TraceEvent& event : stop_trace()) {
      if (event.rank != 0 || event.name.starts_with("barrier")) continue;
      const bool is_instant = event.begin_ns == event.end_ns;
      if (event.category == "comm" && !is_instant) {
        std::string kind = event.name;
        for (const std::string several :
             {"bucket", "parameters of bucket", "gradients of unit", "parameters of unit"}) {
          if (event.name.starts_with(several + " ")) kind = several + "s";
        }
        ++collectives[kind];
        collectives[kind + ", bytes"] += event.num_bytes;
      }
      if (event.category == "copy" || (event.category == "algorithm" && is_instant)) events.push_back(std::move(event));
    }
    for (const auto& [what, value] : collectives) counts.push_back({what, value});
    for (Count& count : trace_counts(events)) counts.push_back(std::move(count));
  });
  expect_counts(str(name, " on two ranks, divided: ", to_string(shard)), table, counts);
}

TEST(DdpStepCounts, Mlp) {
  check_ddp_step("mlp", R"(
buckets 4; buckets, bytes 7454784; control record 1; control record, bytes 14; copy copy 1; copy copy, bytes 14;
copy fill 1; copy fill, bytes 4; algorithm all_gather: slots 1; algorithm all_reduce: one-shot 1;
algorithm all_reduce: two-shot 3;
)");
}
TEST(DdpStepCounts, Lenet) {
  check_ddp_step("lenet", R"(
buckets 3; buckets, bytes 738368; control record 1; control record, bytes 14; copy copy 3; copy copy, bytes 1048590;
copy fill 1; copy fill, bytes 4; algorithm all_gather: slots 1; algorithm all_reduce: one-shot 2;
algorithm all_reduce: slots 1;
)");
}
TEST(DdpStepCounts, Resnet18) {
  check_ddp_step("resnet18", R"(
buckets 25; buckets, bytes 44695872; control record 1; control record, bytes 42; copy add_into 1;
copy add_into, bytes 786432; copy copy 3; copy copy, bytes 49194; copy fill 1; copy fill, bytes 4;
algorithm all_gather: slots 1; algorithm all_reduce: one-shot 7; algorithm all_reduce: slots 3;
algorithm all_reduce: two-shot 15;
)");
}
TEST(DdpStepCounts, GptSmall) {
  check_ddp_step("gpt-small", R"(
buckets 8; buckets, bytes 3272192; control record 1; control record, bytes 36; copy add_into 1;
copy add_into, bytes 99840; copy copy 2; copy copy, bytes 66596; copy fill 1; copy fill, bytes 4;
algorithm all_gather: slots 1; algorithm all_reduce: one-shot 6; algorithm all_reduce: slots 1;
algorithm all_reduce: two-shot 1;
)");
}
TEST(DdpStepCounts, Gpt384) {
  check_ddp_step("gpt-384", R"(
buckets 18; buckets, bytes 43083264; control record 1; control record, bytes 48; copy add_into 1;
copy add_into, bytes 299520; copy copy 2; copy copy, bytes 199728; copy fill 1; copy fill, bytes 4;
algorithm all_gather: slots 1; algorithm all_reduce: one-shot 3; algorithm all_reduce: slots 2;
algorithm all_reduce: two-shot 13;
)");
}
TEST(DdpStepCounts, Gpt384Divided) {
  for (const auto shard : {distributed::Shard::kOptimizer, distributed::Shard::kGradients}) {
    check_ddp_step("gpt-384", R"(
buckets 18; buckets, bytes 21541632; control record 1; control record, bytes 48; parameters of buckets 18;
parameters of buckets, bytes 43083264; copy add_into 1; copy add_into, bytes 299520; copy copy 2;
copy copy, bytes 199728; copy fill 1; copy fill, bytes 4; algorithm all_gather: exchange 16;
algorithm all_gather: slots 3; algorithm reduce_scatter: exchange 16; algorithm reduce_scatter: slots 2;
)",
                   shard);
  }
}
TEST(DdpStepCounts, Gpt384InUnits) {
  check_ddp_step("gpt-384", R"(
control record 1; control record, bytes 48; gradients of the root unit 1; gradients of the root unit, bytes 248064;
gradients of units 6; gradients of units, bytes 21293568; parameters of the root unit 1;
parameters of the root unit, bytes 496128; parameters of units 11; parameters of units, bytes 78076416; copy add_into 1;
copy add_into, bytes 299520; copy copy 2; copy copy, bytes 199728; copy fill 1; copy fill, bytes 4;
algorithm all_gather: exchange 12; algorithm all_gather: slots 1; algorithm reduce_scatter: exchange 7;
)",
                 distributed::Shard::kParameters);
}

}}  // namespace tandem::testing
