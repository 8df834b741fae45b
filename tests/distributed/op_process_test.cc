// Every operation in every form and dtype among processes, against closed forms.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/op_checks.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/full.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

void check_monitored_barrier(ProcessGroup& group, Store& store) {
  for (int round = 1; round <= 3; ++round) {
    store.add("came", 1);
    group.monitored_barrier();
    if (store.add("came", 0) < round * group.size()) throw StateError("passed before all had come");
  }
}

TANDEM_RANK_MAIN(check_every_operation) {
  const std::string& hosts = args.at(1);
  const auto group = ProcessGroup::create(
      {.store = context.store(),
       .rank = context.rank(),
       .world_size = context.world_size(),
       .name = "every operation",
       .timeout = kLongTimeout,
       .backend = args.at(0),
       .host_id = hosts.empty() ? "a host" : hosts.substr(static_cast<size_t>(context.rank()), 1)});
  for (const DType dtype : kDTypes) {
    const bool all_forms = dtype == kFloat32 || dtype == kBFloat16 || testing::runs_all_combinations();
    for (const Form form : kForms) {
      if (all_forms || (form.async && form.strided)) OpChecks(*group, dtype, 37, form).all();
    }
  }
  // 0, 1, and more elements than fit in a signature or a slot.
  for (const int64_t n : {0, 1, 20011}) OpChecks(*group, kFloat32, n, {true, false}).all();
  OpChecks(*group, kBFloat16, 50021, {false, false}).all();
  check_monitored_barrier(*group, *context.store());
  if (::testing::Test::HasFailure()) throw StateError("wrong values");
}

class OperationsAmongProcesses : public ::testing::TestWithParam<Setting> {};

TEST_P(OperationsAmongProcesses, EveryFormMatchesClosedForm) {
  spawn(GetParam().world_size, "check_every_operation", {GetParam().backend, GetParam().hosts});
}

INSTANTIATE_TEST_SUITE_P(Each, OperationsAmongProcesses,
                         ::testing::Values(Setting{2, "shm"}, Setting{4, "shm"}, Setting{2, "gloo"}, Setting{4, "gloo"},
                                           Setting{2, "auto", "ab"}, Setting{4, "auto", "aabb"}),
                         setting_name);

}}}}  // namespace tandem::v0::distributed
