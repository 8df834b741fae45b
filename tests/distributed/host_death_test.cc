// A rank is killed, is stopped, throws or calls another operation in a job of two hosts with two ranks each: shared
// memory within a host, TCP between hosts. The other ranks throw an error that names it within a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/distributed/killed_rank.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

std::unique_ptr<Backend> make_hosts(const ProcessGroupOptions& given, const HostLayout& layout, int64_t leader_bytes) {
  constexpr network::Tuning kLink{.chunk_bytes = 4096};
  ProcessGroupOptions options = given;
  options.host_id = str("host-", layout.host_of(options.rank));
  HostBackends parts;
  parts.flat = network::make_network_backend(options, kLink);
  parts.local = shm::make_shm_backend(options_inside(options, layout));
  if (layout.is_even() || layout.local_rank(options.rank) == 0) {
    parts.cross = network::make_network_backend(options_across(options, layout), kLink);
  }
  return std::make_unique<HierarchicalBackend>(options, layout, std::move(parts),
                                               HostTuning{.leader_bytes = leader_bytes, .chunk_bytes = 32 << 10});
}

const HostLayout kTwoHosts{{{0, 1}, {2, 3}}};
constexpr int64_t kNeverLeaders = 64;

TANDEM_RANK_MAIN(fail_over_hosts) {
  fail_in_the_middle(context, args, [](const auto& options) { return make_hosts(options, kTwoHosts, kNeverLeaders); });
}

TANDEM_RANK_MAIN(fail_over_leaders) {
  fail_in_the_middle(context, args, [](const auto& options) { return make_hosts(options, kTwoHosts, 64 << 20); });
}

/// The victim is not its host's leader.
TANDEM_RANK_MAIN(fail_behind_leader) {
  fail_in_the_middle(context, args, [](const auto& options) {
    return make_hosts(options, {{{0}, {1, 2, 3}}}, kNeverLeaders);
  });
}

/// The victim is the only rank of its host.
TANDEM_RANK_MAIN(fail_alone_on_host) {
  fail_in_the_middle(context, args, [](const auto& options) {
    return make_hosts(options, {{{0, 1, 3}, {2}}}, kNeverLeaders);
  });
}

class HierarchicalRankFailure : public ::testing::TestWithParam<std::string> {};

TEST_P(HierarchicalRankFailure, KilledRankIsNamedOnAllSurvivors) {
  expect_notified("fail_over_hosts", GetParam(), "killed", kKilledReason);
}

TEST_P(HierarchicalRankFailure, ExceptionOfOneRankReachesAllSurvivors) {
  expect_notified("fail_over_hosts", GetParam(), "throws", "out of data");
}

TEST_P(HierarchicalRankFailure, StoppedRankCausesTimeoutOnSurvivors) {
  const Notified notified = errors_of_survivors("fail_over_hosts", GetParam(), "stopped");
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    // The first rank to time out throws, in the operation or, if it needs no data of the victim, in the barrier after
    // it; the others are notified.
    const std::string& text = notified.texts[static_cast<size_t>(rank)];
    EXPECT_THAT(text, ::testing::ContainsRegex("(" + title_of(GetParam()) +
                                               "|barrier #2) timed out after 0.8 s(.|\n)*rank 2 \\("));
  }
  EXPECT_LT(notified.seconds, seconds_allowed("stopped"));
}

/// The errors of all survivors name the victim, and no other rank, as missing. The first rank to time out throws; the
/// others are notified.
void expect_only_victim_missing(const std::string& function, const std::string& operation, int moves) {
  const Notified notified = errors_of_survivors(function, operation, "stopped", moves);
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    const std::string& text = notified.texts[static_cast<size_t>(rank)];
    if (text.ends_with("the operation is over")) continue;  // the victim's few steps were long
    EXPECT_THAT(text, ::testing::ContainsRegex("missing: (data of )?rank 2 \\([^()]*\\)($|\n)"))
        << function << ": rank " << rank << " after " << moves << " moves of " << operation;
  }
}

TEST(HierarchicalStoppedRank, IsNamedInEveryPhaseOfAllReduce) {
  for (const char* function : {"fail_over_hosts", "fail_over_leaders", "fail_behind_leader", "fail_alone_on_host"}) {
    for (const int moves : {1, 4, 13, 40}) expect_only_victim_missing(function, "all_reduce", moves);
  }
}

TEST(HierarchicalStoppedRank, IsNamedInEveryPhaseOfOtherKinds) {
  for (const char* function : {"fail_over_hosts", "fail_behind_leader", "fail_alone_on_host"}) {
    for (const char* kind : {"reduce", "broadcast", "all_gather", "reduce_scatter"}) {
      for (const int moves : {1, 13}) expect_only_victim_missing(function, kind, moves);
    }
  }
}

TEST(HierarchicalStoppedRank, IsNamedIfOnlyItsSignatureWasSent) {
  constexpr int kWhole = 1 << 20;  // the victim completes the first of the queued operations
  for (const char* function : {"fail_over_hosts", "fail_over_leaders", "fail_behind_leader", "fail_alone_on_host"}) {
    expect_only_victim_missing(function, "queued", kWhole);
  }
}

TEST_P(HierarchicalRankFailure, MismatchedCallIsShownOnEveryRank) {
  expect_disagreement("fail_over_hosts", GetParam());
}

/// The operations of the other backends' tests, and all that have phases.
std::vector<std::string> operations() {
  std::vector<std::string> result = failing_operations();
  for (const char* kind : {"reduce", "broadcast", "all_gather", "reduce_scatter"}) {
    if (std::find(result.begin(), result.end(), kind) == result.end()) result.emplace_back(kind);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Operations, HierarchicalRankFailure, ::testing::ValuesIn(operations()),
                         [](const auto& param_info) { return param_info.param; });

TEST(HierarchicalQueuedWork, AllQueuedWorksOfSurvivorsFail) {
  expect_queued_notified("fail_over_hosts", "killed", kKilledReason);
  expect_queued_notified("fail_over_hosts", "throws", "out of data");
}

}}}}  // namespace tandem::v0::distributed
