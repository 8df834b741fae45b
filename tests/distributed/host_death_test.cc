// A rank is killed, is stopped, throws or calls another operation in a job of two hosts with two ranks each: shared
// memory within a host, TCP between hosts. The other ranks throw an error that names it within a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/distributed/killed_rank.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

/// Ranks 0 and 1 on one host, 2 and 3 on the other.
std::unique_ptr<Backend> make_two_hosts(const ProcessGroupOptions& given) {
  constexpr network::Tuning kLink{.chunk_bytes = 4096};
  ProcessGroupOptions options = given;
  options.host_id = options.rank < 2 ? "a" : "b";
  const HostLayout layout{{{0, 1}, {2, 3}}};
  HostBackends parts;
  parts.flat = network::make_network_backend(options, kLink);
  parts.local = shm::make_shm_backend(options_inside(options, layout));
  parts.cross = network::make_network_backend(options_across(options, layout), kLink);
  return std::make_unique<HierarchicalBackend>(options, layout, std::move(parts),
                                               HostTuning{.leader_bytes = 64, .chunk_bytes = 32 << 10});
}

TANDEM_RANK_MAIN(fail_over_hosts) { fail_in_the_middle(context, args, make_two_hosts); }

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
    // The first rank to time out throws; the others are notified.
    const std::string& text = notified.texts[static_cast<size_t>(rank)];
    EXPECT_NE(text.find(title_of(GetParam()) + " timed out after 0.4 s"), std::string::npos) << text;
  }
  EXPECT_LT(notified.seconds, seconds_allowed("stopped"));
}

TEST_P(HierarchicalRankFailure, MismatchedCallIsShownOnEveryRank) {
  expect_disagreement("fail_over_hosts", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Operations, HierarchicalRankFailure, ::testing::ValuesIn(failing_operations()),
                         [](const auto& param_info) { return param_info.param; });

TEST(HierarchicalQueuedWork, AllQueuedWorksOfSurvivorsFail) {
  expect_queued_notified("fail_over_hosts", "killed", kKilledReason);
  expect_queued_notified("fail_over_hosts", "throws", "out of data");
}

}}}}  // namespace tandem::v0::distributed
