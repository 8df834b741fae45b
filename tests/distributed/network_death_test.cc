// A rank is killed, is stopped, throws or calls another operation in the middle of each collective or message over
// the network backend: the other ranks throw an error that names it, in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/distributed/killed_rank.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using ::testing::MatchesRegex;

TANDEM_RANK_MAIN(fail_over_network) {
  fail_in_the_middle(context, args, [](const ProcessGroupOptions& options) {
    return network::make_network_backend(options, {.chunk_bytes = 1024});
  });
}

class NetworkRankFailure : public ::testing::TestWithParam<std::string> {};

TEST_P(NetworkRankFailure, KilledRankIsReportedOnAllSurvivors) {
  expect_notified("fail_over_network", GetParam(), "killed", kKilledReason);
}

TEST_P(NetworkRankFailure, ThrowingRankIsReportedOnAllOtherRanks) {
  expect_notified("fail_over_network", GetParam(), "throws", "out of data");
}

TEST_P(NetworkRankFailure, StoppedRankCausesTimeoutOnAllSurvivors) {
  const Notified notified = errors_of_survivors("fail_over_network", GetParam(), "stopped");
  const bool is_message = GetParam() == "send";
  const std::string title = title_of(GetParam());
  const std::string state = is_message ? "rank 2 \\(has started nothing yet\\)"
                                       : "reached #1: ranks [0-3 ]+\\.  missing: data of rank [^\n]+";
  // Of a rank that needs no data of the victim, and so has reached the barrier.
  const std::string later =
      "|barrier #2( timed out after 0\\.8 s\n  gloo\n  reached #2: [^\n]+|"
      " failed\n  rank [013]: barrier #2 timed out after 0\\.8 s; reached #2: [^\n]+)";
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    const std::string where = where_notified(GetParam(), rank);
    // The first rank to time out throws; the others are notified or time out as well.
    EXPECT_THAT(
        notified.texts[static_cast<size_t>(rank)],
        MatchesRegex(str("\\[rank ", rank, " of 4\\] (", where, "( timed out after 0\\.8 s\n  [28]00000 float32 ",
                         "\\([0-9.]+ [KM]iB\\), gloo\n  ", state, "| failed\n  rank [013]: ", title,
                         " timed out after 0\\.8 s; ", state, ")", where == title ? "" : later, ")")));
  }
  EXPECT_LT(notified.seconds, seconds_allowed("stopped"));
}

TEST_P(NetworkRankFailure, MismatchedCallIsReportedOnAllRanks) { expect_disagreement("fail_over_network", GetParam()); }

INSTANTIATE_TEST_SUITE_P(Operations, NetworkRankFailure, ::testing::ValuesIn(failing_operations()),
                         [](const auto& param_info) { return param_info.param; });

TEST(NetworkQueuedWork, RankFailureFailsAllQueuedWork) {
  expect_queued_notified("fail_over_network", "killed", kKilledReason);
  expect_queued_notified("fail_over_network", "throws", "out of data");
}

}}}}  // namespace tandem::v0::distributed
