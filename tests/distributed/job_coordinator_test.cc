// Invalid messages to node 0's launcher, and events that arrive in another order than they
// happened.
#include <tandem/distributed/launch/job_coordinator.h>

#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/distributed/rendezvous/tcp_store.h>

namespace {

using namespace tandem::distributed;

NodeEvent joined(int node, int num_ranks) {
  NodeEvent event;
  event.kind = NodeEvent::Kind::kJoined;
  event.node = node;
  event.num_nodes = 2;
  event.num_ranks = num_ranks;
  event.text = "host";
  return event;
}

NodeEvent killed(int rank, int signal) {
  NodeEvent event;
  event.kind = NodeEvent::Kind::kEnded;
  event.exit.rank = rank;
  event.exit.wait_status = signal;
  return event;
}

JobOptions two_nodes() {
  JobOptions options;
  options.nodes.num_nodes = 2;
  options.nodes.host = "127.0.0.1";
  return options;
}

/// Node 0 of two; records the commands it sends.
struct Job {
  int count(NodeCommand::Kind kind) const {
    int n = 0;
    for (const NodeCommand& command : reported) n += command.kind == kind ? 1 : 0;
    return n;
  }

  const JobOptions options = two_nodes();
  std::vector<NodeCommand> reported;
  JobCoordinator coordinator{
      options,
      {.broadcast = [this](const NodeCommand& command) { reported.push_back(command); }, .print = [](const auto&) {}}};
};

TEST(JobCoordinator, LauncherLostBeforeItJoinedHasNoHostName) {
  Job job;
  job.coordinator.on_lost(1, "died (its connection closed)");
  EXPECT_EQ(job.coordinator.result().message, "node 1: its launcher died (its connection closed)");
}

TEST(JobCoordinator, InvalidNodeOrRankCountFailsJob) {
  const std::vector<std::pair<int, int>> wrong = {{2, 1}, {-1, 1}, {INT_MAX, 1}, {1, 0}, {1, -3}, {1, 1025}};
  for (const auto& [node, num_ranks] : wrong) {
    Job job;
    job.coordinator.on_event(joined(0, 1));
    job.coordinator.on_event(joined(node, num_ranks));
    ASSERT_TRUE(job.coordinator.finished()) << node << " " << num_ranks;
    EXPECT_EQ(job.coordinator.result().message, "launch: received an invalid message: node " + std::to_string(node) +
                                                    " with " + std::to_string(num_ranks) + " ranks");
    EXPECT_EQ(job.coordinator.result().status, 1);
    EXPECT_EQ(job.count(NodeCommand::Kind::kStart), 0);
  }
}

TEST(JobCoordinator, RepeatedJoinsStartRanksOnce) {
  Job job;
  for (const int node : {0, 0, 1, 1, 0}) job.coordinator.on_event(joined(node, 3));
  EXPECT_FALSE(job.coordinator.finished());
  ASSERT_EQ(job.count(NodeCommand::Kind::kStart), 1);
  EXPECT_EQ(job.reported[0].ranks, (std::vector<int>{0, 3}));
  EXPECT_EQ(job.reported[0].assignment.world_size, 6);
}

TEST(JobCoordinator, EventsOfUnknownNodesAreIgnored) {
  Job job;
  NodeEvent event;
  event.kind = NodeEvent::Kind::kCannotStart;
  event.node = 7;
  job.coordinator.on_event(event);
  job.coordinator.on_lost(7, "died");
  job.coordinator.on_lost(-1, "died");
  EXPECT_FALSE(job.coordinator.finished());
  EXPECT_TRUE(job.reported.empty());
}

TEST(JobCoordinator, LateStoreNoticeKeepsFirstDeathAsCause) {
  for (const bool consequence_joined : {false, true}) {
    Job job;
    for (const int node : {0, 1}) job.coordinator.on_event(joined(node, 1));
    const RankAssignment assignment = job.reported.at(0).assignment;
    job.coordinator.serve();
    const auto join = [&](int rank) {
      return std::make_unique<TcpStore>(TcpStoreOptions{.host = assignment.store_host,
                                                        .port = assignment.store_port,
                                                        .token = assignment.token,
                                                        .rank = rank,
                                                        .world_size = 2});
    };
    const std::unique_ptr<TcpStore> one = join(1);
    job.coordinator.on_event(killed(1, SIGKILL));  // its connection to the store is still open
    ASSERT_EQ(job.count(NodeCommand::Kind::kStop), 1);
    EXPECT_EQ(job.reported.back().ranks,
              std::vector<int>{0});   // has not joined the store, so it is stopped by a signal
    if (consequence_joined) join(0);  // and its connection closes
    job.coordinator.on_event(killed(0, SIGTERM));
    ASSERT_TRUE(job.coordinator.finished());
    EXPECT_EQ(job.coordinator.result().message, "rank 1 of 2 on node 1 (host) failed (killed by SIGKILL)");
    EXPECT_EQ(job.coordinator.result().failed_rank, 1);
  }
}

TEST(JobCoordinator, FailureAnnouncedBeforeDeathIsRootCause) {
  Job job;
  for (const int node : {0, 1}) job.coordinator.on_event(joined(node, 1));
  const RankAssignment assignment = job.reported.at(0).assignment;
  job.coordinator.serve();
  TcpStore one({.host = assignment.store_host,
                .port = assignment.store_port,
                .token = assignment.token,
                .rank = 1,
                .world_size = 2});
  one.announce_failure(1, "boom");
  job.coordinator.on_event(killed(0, SIGTERM));
  NodeEvent failed = killed(1, 0);
  failed.exit.wait_status = 1 << 8;
  job.coordinator.on_event(failed);
  ASSERT_TRUE(job.coordinator.finished());
  EXPECT_EQ(job.coordinator.result().message, "rank 1 of 2 on node 1 (host) failed (exit status 1): boom");
}

TEST(MissingRanks, HeadlineNamesMissingAndWaitingRanks) {
  MissingRanks ranks{.missing = {2},
                     .waiting = {0, 1},
                     .world_size = 3,
                     .operation = "all_reduce (collective 7)",
                     .timeout = std::chrono::seconds(2)};
  EXPECT_EQ(to_headline(ranks),
            "rank 2 of 3 did not take part in all_reduce (collective 7) within 2.0 s; waiting: ranks 0, 1");
  ranks.missing = {1, 3, 4, 5, 9, 10};
  ranks.waiting = {0};
  ranks.world_size = 0;
  ranks.group = "evaluation";
  ranks.have_started = true;
  EXPECT_EQ(to_headline(ranks),
            "ranks 1, 3-5, 9, 10 did not finish all_reduce (collective 7) of group 'evaluation' within 2.0 s; waiting: "
            "rank 0");
}

TEST(MissingRanks, OnlyHeadlinesOmitReportingRank) {
  const std::string headline =
      "rank 2 of 3 did not take part in barrier (collective 1) within 2.0 s; waiting: ranks 0, 1";
  const MissingRanksError error(headline, "barrier timed out", 0, 2);
  EXPECT_EQ(describe_failure("rank 0 of 3", " (exit status 1)", failure_to_announce(error)),
            headline + "\nbarrier timed out");
  for (const char* text : {"boom", "rank 2 left", "failed\nrank 2; waiting: rank 0"}) {
    EXPECT_EQ(describe_failure("rank 0 of 3", " (exit status 1)", text),
              std::string("rank 0 of 3 failed (exit status 1): ") + text);
  }
  EXPECT_EQ(describe_failure("rank 0 of 3", " (killed by SIGKILL)", ""), "rank 0 of 3 failed (killed by SIGKILL)");
}

TEST(JobCoordinator, TimeoutReportNamesMissingRanks) {
  Job job;
  for (const int node : {0, 1}) job.coordinator.on_event(joined(node, 1));
  const RankAssignment assignment = job.reported.at(0).assignment;
  job.coordinator.serve();
  TcpStore zero({.host = assignment.store_host,
                 .port = assignment.store_port,
                 .token = assignment.token,
                 .rank = 0,
                 .world_size = 2});
  const std::string text =
      "rank 1 of 2 did not take part in barrier (collective 1) within 2.0 s; waiting: rank 0\ndetails";
  zero.announce_failure(0, text);
  NodeEvent failed = killed(0, 0);
  failed.exit.wait_status = 1 << 8;
  job.coordinator.on_event(failed);
  job.coordinator.on_event(killed(1, SIGTERM));
  ASSERT_TRUE(job.coordinator.finished());
  EXPECT_EQ(job.coordinator.result().message, text);
  EXPECT_EQ(job.coordinator.result().failed_rank, 0);
}

}  // namespace
