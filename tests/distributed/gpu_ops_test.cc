// Every collective in every form and dtype on GPUs, against closed forms. Ranks are threads or processes.
#include <gtest/gtest.h>

#include <string>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/gpu_contexts.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/op_checks.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

void check_every_dtype(ProcessGroup& group, Device device) {
  for (const DType dtype : kDTypes) {
    const bool all_forms = dtype == kFloat32 || dtype == kBFloat16;
    for (const Form form : kForms) {
      if (all_forms || (form.async && form.strided)) OpChecks(group, dtype, 37, form, device).all();
    }
  }
  for (const int64_t n : {0, 1, 20011}) OpChecks(group, kFloat32, n, {true, false}, device).all();
}

class GpuOps : public ::testing::TestWithParam<int> {};

TEST_P(GpuOps, CollectivesMatchClosedFormsAcrossThreads) {
  ThreadRanks{.world_size = GetParam(), .backend = "auto"}.run(
      [](ProcessGroup& group) { check_every_dtype(group, Device::cuda(group.rank())); });
}

TANDEM_RANK_MAIN(check_every_operation_on_gpus) {
  const auto group = ProcessGroup::create({.store = context.store(),
                                           .rank = context.rank(),
                                           .world_size = context.world_size(),
                                           .name = "gpus",
                                           .timeout = kLongTimeout,
                                           .backend = args.at(0)});
  const Device device = gpu_of_rank(context.rank());
  check_every_dtype(*group, device);
  check_no_other_gpu(device);
  if (::testing::Test::HasFailure()) throw StateError("wrong values");
}

TEST_P(GpuOps, CollectivesMatchClosedFormsAcrossProcesses) {
  for (const char* backend : {"auto", "cpu:gloo,cuda:nccl"}) {
    if (GetParam() != 2 && backend != std::string("auto")) continue;
    spawn(GetParam(), "check_every_operation_on_gpus", {backend});
  }
}

// tools/gpu_checks selects tests by these names.
INSTANTIATE_TEST_SUITE_P(World, GpuOps, ::testing::Values(1, 2, 4),
                         [](const auto& world) { return "Of" + std::to_string(world.param); });

}}}}  // namespace tandem::v0::distributed
