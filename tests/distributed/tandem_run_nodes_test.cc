// tandem-run on several hosts: one launcher per host, all on this machine.
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/tests/support/stopped_process.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using tandem::distributed::connect_to;
using tandem::distributed::FileDescriptor;
using tandem::distributed::listen_on;
using tandem::distributed::local_port;
using tandem::testing::wait_until_stopped;
using tandem::testing_support::pidfds_of;
using tandem::testing_support::sorted_lines;
using tandem::testing_support::Subprocess;
using tandem::testing_support::wait_for_end;
using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

const std::string kProgram = "tests/distributed/launch_program";
const std::string kTandemRun = "distributed/launch/tandem-run";

const Variables kShortShutdown = {{"TANDEM_SHUTDOWN_TIMEOUT_S", "2"}};
/// Longer than Subprocess::kBound: a program that waits for it is killed by the test, with another status.
const Variables kLongShutdown = {{"TANDEM_SHUTDOWN_TIMEOUT_S", "1000"}};

int free_port() { return local_port(listen_on("127.0.0.1", 0).get()); }

/// Connects to the loopback; retries until there is a listener.
FileDescriptor connect_to_port(int port) {
  return connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + Subprocess::kBound);
}

/// Closes all connections to the listener until the process has ended.
void refuse_until_end_of(int pidfd, const FileDescriptor& listener) {
  for (;;) {
    pollfd polled[2] = {{pidfd, POLLIN, 0}, {listener.get(), POLLIN, 0}};
    if (poll(polled, 2, 1000 * static_cast<int>(Subprocess::kBound.count())) <= 0 || polled[0].revents != 0) return;
    close(accept(listener.get(), nullptr, nullptr));
  }
}

std::string endpoint(int port) { return "127.0.0.1:" + std::to_string(port); }

std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

/// "node 1 (name)".
std::string node_text(int node) { return "node " + std::to_string(node) + " (" + own_host_name() + ")"; }

/// The command of one host's launcher: `flags`, then the program.
std::unique_ptr<Subprocess> start_node(int port, int num_nodes, int node, const Arguments& more,
                                       const Variables& variables = {}) {
  Arguments arguments = {kTandemRun,    "--nnodes",           std::to_string(num_nodes),
                         "--node-rank", std::to_string(node), "--rdzv-endpoint",
                         endpoint(port)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<Subprocess>(arguments, variables);
}

/// stderr without the warning about shared cores and without log lines.
std::string messages(const std::string& err) {
  std::string kept;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    const bool is_logged = line.find(" warning ") != std::string::npos || line.find(" info ") != std::string::npos;
    if (!line.ends_with("the ranks share cores") && !is_logged) kept += line + "\n";
  }
  return kept;
}

/// The process that printed "pid N".
pid_t pid_in(const std::string& out) { return std::stoi(out.substr(out.find("pid ") + 4)); }

void expect_ended(const std::vector<int>& pidfds) {
  for (const int pidfd : pidfds) {
    EXPECT_TRUE(wait_for_end(pidfd));
    close(pidfd);
  }
}

TEST(TandemRunMultiNode, RanksAreNumberedHostByHost) {
  const int port = free_port();
  const std::string script =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE "
      "$MASTER_ADDR $TORCHELASTIC_RUN_ID";
  const Arguments program = {"sh", "-c", script};
  const auto with = [&](const std::string& n) {
    Arguments arguments = {"--rdzv-id", "job", "--nproc-per-node", n};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  };
  auto last = start_node(port, 3, 2, with("1"));
  auto first = start_node(port, 3, 0, with("2"));
  auto middle = start_node(port, 3, 1, with("3"));
  EXPECT_EQ(sorted_lines(first->wait().out),
            (Arguments{"0/6 0/2 0/3 0/6 127.0.0.1 job", "[1] 1/6 1/2 0/3 1/6 127.0.0.1 job"}));
  EXPECT_EQ(sorted_lines(middle->wait().out),
            (Arguments{"[2] 2/6 0/3 1/3 2/6 127.0.0.1 job", "[3] 3/6 1/3 1/3 3/6 127.0.0.1 job",
                       "[4] 4/6 2/3 1/3 4/6 127.0.0.1 job"}));
  EXPECT_EQ(sorted_lines(last->wait().out), (Arguments{"[5] 5/6 0/1 2/3 5/6 127.0.0.1 job"}));
  for (auto* node : {&first, &middle, &last}) EXPECT_EQ((*node)->wait().status, 0);
}

TEST(TandemRunMultiNode, RanksOfAllHostsShareOneStore) {
  const int port = free_port();
  const Arguments program = {"--nproc-per-node", "2", kProgram, "exchange"};
  auto one = start_node(port, 2, 1, program);
  auto zero = start_node(port, 2, 0, program);
  const auto first = zero->wait();
  const auto second = one->wait();
  EXPECT_EQ(sorted_lines(first.out), (Arguments{"[1] sum 60", "sum 60"})) << first.err;
  EXPECT_EQ(sorted_lines(second.out), (Arguments{"[2] sum 60", "[3] sum 60"})) << second.err;
  EXPECT_EQ(first.status, 0);
  EXPECT_EQ(second.status, 0);
}

TEST(TandemRunMultiNode, MasterAddrAndPortReplaceRdzvEndpoint) {
  const int port = free_port();
  std::vector<std::unique_ptr<Subprocess>> nodes;
  for (const std::string node : {"0", "1"}) {
    nodes.push_back(std::make_unique<Subprocess>(
        Arguments{kTandemRun, "--nnodes=2:2", "--node_rank", node, "--master_addr", "127.0.0.1", "--master_port",
                  std::to_string(port), "--rdzv_backend=static", "--rdzv-conf", "timeout=9", kProgram, "exchange"}));
  }
  for (auto& node : nodes) {
    const auto result = node->wait();
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(messages(result.err), "tandem-run: --rdzv-conf is ignored; use --timeout\n");
  }
}

TEST(TandemRunMultiNode, FailureEndsAllNodesAndIsNamed) {
  for (const std::string rank : {"0", "3"}) {
    for (const std::string how : {"throw", "kill-when-all-joined"}) {
      const int port = free_port();
      const Arguments program = {"--nproc-per-node", "2", kProgram, how, rank};
      auto zero = start_node(port, 2, 0, program);
      auto one = start_node(port, 2, 1, program);
      const std::string expected =
          "rank " + rank + " of 4 on " + node_text(rank == "0" ? 0 : 1) + " failed (" +
          (how == "throw" ? "exit status 1): boom on rank " + rank + " of 4\n" : "killed by SIGKILL)\n");
      for (auto* node : {&zero, &one}) {
        const auto result = (*node)->wait();
        EXPECT_EQ(messages(result.err), expected);
        EXPECT_EQ(result.status, 1);
      }
    }
  }
}

TEST(TandemRunMultiNode, FailureEndsProgramsWithoutStore) {
  const int port = free_port();
  auto zero = start_node(port, 2, 0, {"sh", "-c", "echo pid $$; exec sleep 1000"}, kLongShutdown);
  auto one = start_node(port, 2, 1, {"sh", "-c", "echo the reason >&2; exit 3"}, kLongShutdown);
  const std::string expected = "rank 1 of 2 on " + node_text(1) + " failed (exit status 3)\n";
  const auto first = zero->wait();
  EXPECT_EQ(first.err, expected);
  EXPECT_EQ(first.status, 1);
  EXPECT_EQ(one->wait().err, "[1] the reason\n" + expected);
}

TEST(TandemRunMultiNode, NodeZeroShowsEndOfFailingLog) {
  const int port = free_port();
  const std::string folder = testing::TempDir() + "/logs";
  auto zero = start_node(port, 2, 0, {"--log-dir", folder, "sleep", "1000"});
  auto one = start_node(port, 2, 1, {"--log-dir", folder, "sh", "-c", "echo last words; exit 3"});
  EXPECT_EQ(zero->wait().err, "rank 1 of 2 on " + node_text(1) + " failed (exit status 3)\n  last lines of " + folder +
                                  "/rank-1.log:\n    last words\n");
  EXPECT_EQ(one->wait().status, 1);
}

TEST(TandemRunMultiNode, AllHostsRestartTogether) {
  const int port = free_port();
  const auto program = [](const std::string& restarts) {
    return Arguments{"--max-restarts", restarts, "--nproc-per-node", "2", kProgram, "fail-until", "3", "2", "kill"};
  };
  auto zero = start_node(port, 2, 0, program("3"), {{"TANDEM_HOST_ID", "a"}});
  auto one = start_node(port, 2, 1, program("0"), {{"TANDEM_HOST_ID", "b"}});  // the value of node 0 is used
  const auto first = zero->wait();
  EXPECT_EQ(sorted_lines(first.out),
            (Arguments{"[1] restart 0 joined by 4", "[1] restart 1 joined by 4", "[1] restart 2 joined by 4",
                       "restart 0 joined by 4", "restart 1 joined by 4", "restart 2 joined by 4"}));
  std::string expected;
  for (const std::string restart : {"1", "2"}) {
    expected += "rank 3 of 4 on " + node_text(1) + " failed (killed by SIGKILL)\nrestart " + restart + " of 3\n";
  }
  EXPECT_EQ(messages(first.err), expected);
  EXPECT_EQ(first.status, 0);
  EXPECT_EQ(one->wait().status, 0);
}

/// A job of two hosts.
struct TwoNodes {
  explicit TwoNodes(const Arguments& program, const Variables& variables = {})
      : nodes{start_node(port, 2, 0, program, variables), start_node(port, 2, 1, program, variables)} {}

  const int port = free_port();
  std::unique_ptr<Subprocess> nodes[2];
  std::vector<int> pidfds = {};
};

TEST(TandemRunMultiNode, KilledLauncherEndsWholeJob) {
  // Both jobs concurrently, because ranks that ignore signals are killed only after the shutdown timeout.
  const Arguments program = {"--nproc-per-node", "2", "--max-restarts", "3", kProgram, "stubborn"};
  TwoNodes jobs[2] = {TwoNodes(program, kShortShutdown), TwoNodes(program, kShortShutdown)};
  for (const int killed : {0, 1}) {
    auto& [port, nodes, pidfds] = jobs[killed];
    for (auto& node : nodes) {
      ASSERT_TRUE(node->wait_for_output("pid ", 2));
      for (const int pidfd : pidfds_of(node->out())) pidfds.push_back(pidfd);
    }
    ASSERT_EQ(pidfds.size(), 4u);
    nodes[killed]->send_signal(SIGKILL);
  }
  for (const int killed : {0, 1}) {
    auto& [port, nodes, pidfds] = jobs[killed];
    const auto result = nodes[1 - killed]->wait();
    EXPECT_EQ(result.status, 1);
    // A process killed with unread data resets its connection.
    const bool is_reset = result.err.find(" (Connection reset by peer)\n") != std::string::npos;
    const std::string how =
        is_reset ? "lost its connection to the store at " + endpoint(port) + " (Connection reset by peer)"
                 : "died (its connection closed)";
    const std::string said = killed == 1 ? node_text(1) + ": its launcher " + how + "\n"
                                         : "launch: node 0's launcher was lost: the connection to the store's host " +
                                               endpoint(port) + " was lost: ";
    EXPECT_EQ(messages(result.err).find(said), 0u) << result.err;
    expect_ended(pidfds);
  }
}

TEST(TandemRunMultiNode, ResumedLauncherEndsWithFailedJob) {
  TwoNodes jobs[2] = {TwoNodes({kProgram, "wait"}), TwoNodes({kProgram, "wait"})};
  for (const int stopped : {0, 1}) {
    auto& nodes = jobs[stopped].nodes;
    for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("pid "));
    nodes[stopped]->send_signal(SIGSTOP);
    kill(pid_in(nodes[1]->out()), SIGKILL);
  }
  for (const int stopped : {0, 1}) {
    auto& nodes = jobs[stopped].nodes;
    const auto other = nodes[1 - stopped]->wait();
    EXPECT_EQ(messages(other.err),
              stopped == 0 ? "launch: node 0 does not respond\n" : node_text(1) + ": its launcher does not respond\n");
    EXPECT_EQ(other.status, 1);
    nodes[stopped]->send_signal(SIGCONT);
    const auto result = nodes[stopped]->wait();
    // Node 1 may detect that node 0 does not respond. Node 0 sees one of node 1's exits first. Node 1 sees what node 0
    // has said of it or the end of the connection first.
    const std::string lost = "launch: node 0's launcher was lost: the connection to the store's host " +
                             endpoint(jobs[1].port) + " was lost: ";
    const std::string said = messages(result.err);
    const bool is_named = said.find(node_text(1)) != std::string::npos;
    EXPECT_TRUE(is_named || (stopped == 1 && said.find(lost) != std::string::npos)) << result.err;
    EXPECT_EQ(result.status, 1);
  }
}

TEST(TandemRunMultiNode, StoppedLauncherIsAbandonedAfterDeathOfItsRank) {
  // Connected by the network or by shared memory, where the death of a rank is seen without the store.
  for (const std::string host : {"b", "a"}) {
    const int port = free_port();
    const std::unique_ptr<Subprocess> nodes[] = {
        start_node(port, 2, 0, {kProgram, "stopped", "0"}, {{"TANDEM_HOST_ID", "a"}}),
        start_node(port, 2, 1, {kProgram, "stopped", "0"}, {{"TANDEM_HOST_ID", host}})};
    for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("pid "));
    const pid_t rank0 = pid_in(nodes[0]->out());
    ASSERT_TRUE(wait_until_stopped(rank0));  // rank 1 has left the first barrier or can do so
    nodes[0]->send_signal(SIGSTOP);          // with the store
    kill(rank0, SIGKILL);
    const auto other = nodes[1]->wait(std::chrono::seconds(20));
    EXPECT_EQ(messages(other.err), "launch: node 0 does not respond\n");
    EXPECT_EQ(other.status, 1);
    nodes[0]->send_signal(SIGCONT);
    EXPECT_EQ(nodes[0]->wait().status, 1);
  }
}

TEST(TandemRunMultiNode, LostStoreConnectionIsReportedWithReason) {
  for (const std::string rank : {"0", "1"}) {
    const int port = free_port();
    std::unique_ptr<Subprocess> nodes[2] = {start_node(port, 2, 0, {kProgram, "reset", rank}),
                                            start_node(port, 2, 1, {kProgram, "reset", rank})};
    for (auto& node : nodes) {
      const auto result = node->wait();
      const std::string named = "rank " + rank + " of 2 on " + node_text(std::stoi(rank)) +
                                " failed (exit status 1): it lost its connection to the store at 127.0.0.1:";
      EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
      EXPECT_TRUE(result.err.ends_with(" (Connection reset by peer)\n")) << result.err;
      EXPECT_EQ(result.status, 1);
    }
  }
}

TEST(TandemRunMultiNode, KilledRankEndsCrossHostCollectives) {
  const int port = free_port();
  const Arguments program = {"--nproc-per-node", "2", kProgram, "kill-in-collective", "3"};
  auto zero = start_node(port, 2, 0, program, {{"TANDEM_HOST_ID", "a"}});
  auto one = start_node(port, 2, 1, program, {{"TANDEM_HOST_ID", "b"}});
  for (auto* node : {&zero, &one}) {
    const auto result = (*node)->wait();
    EXPECT_EQ(messages(result.err), "rank 3 of 4 on " + node_text(1) + " failed (killed by SIGKILL)\n");
    EXPECT_EQ(result.status, 1);
    // Rank 0 logs the chosen backend.
    const bool says = result.err.find("group 'default': 2 hosts x 2: shm inside, gloo over ") != std::string::npos;
    EXPECT_EQ(says, node == &zero) << result.err;
  }
}

TEST(TandemRunMultiNode, StoppedRankIsKilledAfterPeerTimeout) {
  const int port = free_port();
  const Arguments program = {"--timeout", "3", kProgram, "stopped", "1"};
  auto zero = start_node(port, 2, 0, program, kShortShutdown);
  auto one = start_node(port, 2, 1, program, kShortShutdown);
  ASSERT_TRUE(one->wait_for_output("pid "));
  const auto pidfds = pidfds_of(one->out());
  const auto result = zero->wait();
  const std::string said =
      "rank 1 of 2 did not take part in barrier (collective 2) within 3.0 s; waiting: rank 0\n"
      "[rank 0 of 2] barrier #2 timed out after 3.0 s\n";
  EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(one->wait().status, 1);
  expect_ended(pidfds);
}

TEST(TandemRunMultiNode, SignalToOneLauncherStopsAllNodes) {
  for (const int asked : {0, 1}) {
    const int port = free_port();
    const Arguments program = {"--max-restarts", "3", kProgram, "stop"};
    std::unique_ptr<Subprocess> nodes[2] = {start_node(port, 2, 0, program), start_node(port, 2, 1, program)};
    for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("ready\n"));
    nodes[asked]->send_signal(SIGTERM);
    for (auto& node : nodes) {
      const auto result = node->wait();
      EXPECT_NE(result.out.find("stopped\n"), std::string::npos);
      EXPECT_EQ(messages(result.err), "");
      EXPECT_EQ(result.status, 143);
    }
  }
}

TEST(TandemRunMultiNode, SecondSignalKillsRanksOnAllHosts) {
  const int port = free_port();
  std::unique_ptr<Subprocess> nodes[2] = {start_node(port, 2, 0, {kProgram, "stubborn"}, kLongShutdown),
                                          start_node(port, 2, 1, {kProgram, "stubborn"}, kLongShutdown)};
  for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("pid "));
  nodes[1]->send_signal(SIGINT);
  for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("asked\n"));
  nodes[1]->send_signal(SIGINT);
  for (auto& node : nodes) EXPECT_EQ(node->wait().status, 130);
}

TEST(TandemRunMultiNode, SignalWhileJoiningEndsLauncher) {
  const int port = free_port();
  auto zero = start_node(port, 3, 0, {"true"});  // the others never join
  FileDescriptor connection = connect_to_port(port);
  zero->send_signal(SIGINT);
  EXPECT_EQ(zero->wait().status, 130);
  connection.reset();
  auto one = start_node(port, 3, 1, {"true"});  // no process listens
  one->send_signal(SIGTERM);
  EXPECT_EQ(one->wait().status, 143);
}

TEST(TandemRunMultiNode, TimeoutNamesMissingNodes) {
  const int port = free_port();
  auto zero = start_node(port, 4, 0, {"--timeout", "2", "true"});
  auto two = start_node(port, 4, 2, {"--timeout", "2", "true"});
  const std::string hint = "\n  127.0.0.1 is a loopback address, which other hosts cannot reach\n";
  const std::string expected = "launch: not all launchers of 4 nodes joined within 2.0 s\n  missing: node 1 3" + hint;
  EXPECT_EQ(zero->wait().err, expected);
  const auto result = two->wait();
  EXPECT_EQ(result.err, expected);
  EXPECT_EQ(result.status, 1);
  const auto alone = start_node(free_port(), 2, 1, {"--timeout", "0.5", "true"})->wait();
  EXPECT_NE(alone.err.find("launch: node 1 did not reach node 0 at 127.0.0.1:"), std::string::npos) << alone.err;
  EXPECT_NE(alone.err.find(" within 0.5 s: Connection refused" + hint), std::string::npos) << alone.err;
  EXPECT_EQ(alone.status, 1);
}

TEST(TandemRunMultiNode, DuplicateNodeRankFailsAllLaunchers) {
  for (const int twice : {0, 1}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Subprocess>> nodes;
    nodes.push_back(start_node(port, 3, 0, {"true"}));
    connect_to_port(port);  // it listens, so the next launcher with node 0 is the second one
    if (twice == 1) nodes.push_back(start_node(port, 3, 1, {"true"}));
    nodes.push_back(start_node(port, 3, twice, {"true"}));
    const std::string said = "two launchers were started as node " + std::to_string(twice) + "\n";
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto result = nodes[i]->wait();
      const bool refused = twice == 0 && i == 1;
      EXPECT_NE(
          result.err.find(refused ? "store: cannot listen on " + endpoint(port) + ": Address already in use\n" : said),
          std::string::npos)
          << result.err;
      EXPECT_NE(result.status, 0);
    }
  }
}

TEST(TandemRunMultiNode, LateDuplicateIsRejectedAndJobContinues) {
  const int port = free_port();
  std::unique_ptr<Subprocess> nodes[2] = {start_node(port, 2, 0, {kProgram, "stop"}),
                                          start_node(port, 2, 1, {kProgram, "stop"})};
  for (auto& node : nodes) ASSERT_TRUE(node->wait_for_output("ready\n"));
  const auto late = start_node(port, 2, 1, {"true"})->wait();
  EXPECT_EQ(late.err, "launch: two launchers were started as node 1\n");
  EXPECT_EQ(late.status, 1);
  nodes[0]->send_signal(SIGTERM);
  for (auto& node : nodes) EXPECT_EQ(node->wait().status, 143);
}

TEST(TandemRunMultiNode, DifferentNodeCountsFailAllLaunchers) {
  const int port = free_port();
  auto zero = start_node(port, 2, 0, {"true"});
  auto five = start_node(port, 6, 5, {"true"});
  for (auto* node : {&zero, &five}) {
    const auto result = (*node)->wait();
    EXPECT_EQ(result.err, "launch: " + node_text(5) + " was started with --nnodes 6, node 0 with --nnodes 2\n");
    EXPECT_EQ(result.status, 2);
  }
}

TEST(TandemRunMultiNode, MissingProgramOnOneNodeEndsJob) {
  const int port = free_port();
  auto zero = start_node(port, 2, 0, {"sh", "-c", "exec sleep 1000"});
  auto one = start_node(port, 2, 1, {"--nproc-per-node", "2", "./no/such/program"});
  for (auto* node : {&zero, &one}) {
    const auto result = (*node)->wait();
    EXPECT_EQ(messages(result.err),
              node_text(1) + ": launch: cannot run './no/such/program': No such file or directory\n");
    EXPECT_EQ(result.status, 1);
  }
}

TEST(TandemRunMultiNode, UnauthenticatedClientsDoNotDisturbJob) {
  const int port = free_port();
  const Arguments program = {"--rdzv-id", "job", kProgram, "exchange"};
  auto zero = start_node(port, 2, 0, program);
  const FileDescriptor garbage = connect_to_port(port);
  const FileDescriptor silent = connect_to_port(port);
  const std::string bytes(5000, 'x');
  EXPECT_GT(send(garbage.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  const auto stranger = start_node(port, 2, 1, {"--rdzv-id", "another", kProgram, "exchange"})->wait();
  EXPECT_EQ(stranger.err, "store: " + endpoint(port) +
                              " closed the connection of rank 1 before it joined\n"
                              "  another job or program uses this port, or TANDEM_TOKEN is wrong\n");
  EXPECT_EQ(stranger.status, 1);
  auto one = start_node(port, 2, 1, program);
  EXPECT_EQ(one->wait().out, "[1] sum 10\n");
  EXPECT_EQ(zero->wait().out, "sum 10\n");
}

TEST(TandemRunMultiNode, SecretTokenReplacesRdzvId) {
  const int port = free_port();
  const std::string secret(64, 'a');
  const std::string other(64, 'b');
  const Arguments program = {"--rdzv-id", "job", "sh", "-c", "echo $TANDEM_TOKEN"};
  auto zero = start_node(port, 2, 0, program, {{"TANDEM_TOKEN", secret}});
  for (const Variables& wrong : {Variables{}, Variables{{"TANDEM_TOKEN", other}}}) {
    EXPECT_NE(start_node(port, 2, 1, program, wrong)->wait().err.find("TANDEM_TOKEN is wrong"), std::string::npos);
  }
  auto one = start_node(port, 2, 1, program, {{"TANDEM_TOKEN", secret}});
  const std::string token = zero->wait().out;
  EXPECT_EQ("[1] " + token, one->wait().out);
  EXPECT_NE(token, secret + "\n");  // the ranks have a separate token
  EXPECT_EQ(token.size(), 65u);
}

TEST(TandemRunMultiNode, ForeignServerAtEndpointIsAnError) {
  const FileDescriptor listener = listen_on("127.0.0.1", 0);
  const int port = local_port(listener.get());
  const auto zero = start_node(port, 2, 0, {"true"})->wait();
  EXPECT_EQ(zero.err.find("store: cannot listen on " + endpoint(port) + ": Address already in use\n"), 0u) << zero.err;
  EXPECT_EQ(zero.status, 1);
  auto one = start_node(port, 2, 1, {"true"});
  refuse_until_end_of(one->pidfd(), listener);
  const auto result = one->wait();
  EXPECT_NE(result.err.find("closed the connection of rank 1 before it joined"), std::string::npos) << result.err;
  EXPECT_EQ(result.status, 1);
}

/// An ssh that runs the command on this machine, without its variables, in a session that outlives it.
const std::string kSsh = R"(#!/bin/sh
case "$4" in
  down) echo "ssh: connect to host down port 22: Connection refused" >&2; exit 255 ;;
  late) exec sleep 1000 ;;
esac
[ "$1 $2 $3" = "-o BatchMode=yes -T" ] && echo "$5" > "$0.command"
exec 3<&0
env -i PATH="$PATH" setsid sh -c "$5" <&3 3<&- &
exec 3<&- < /dev/null
wait $!
)";

struct TandemRunHosts : testing::Test {
  TandemRunHosts() { std::filesystem::permissions(ssh, std::filesystem::perms::owner_all); }

  std::unique_ptr<Subprocess> start(const std::string& hosts, const Arguments& program, Variables variables = {}) {
    Arguments arguments = {kTandemRun, "-H", hosts};
    arguments.insert(arguments.end(), program.begin(), program.end());
    variables.emplace_back("TANDEM_SSH", ssh);
    return std::make_unique<Subprocess>(arguments, variables);
  }

  const tandem::testing::TemporaryFolder folder;
  const std::string ssh = folder.write("ssh", kSsh);
};

TEST_F(TandemRunHosts, EachHostHasItsNumberOfRanks) {
  const auto result = start("127.0.0.1,b:2,me@c", {"--nproc-per-node", "1", kProgram, "exchange"})->wait();
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"[1] sum 60", "[2] sum 60", "[3] sum 60", "sum 60"})) << result.err;
  EXPECT_EQ(messages(result.err), "");
  EXPECT_EQ(result.status, 0);
}

TEST_F(TandemRunHosts, OtherHostsGetArgumentsAndVariablesButNoSecret) {
  const std::string secret(64, 'a');
  const std::string script = "for word; do printf '<%s>' \"$word\"; done; echo \"$TANDEM_X $TANDEM_HOST_ID\"";
  const auto result = start("127.0.0.1,b", {"sh", "-c", script, "sh", "a b", "it's", "\"$HOME\"", "*", "", "\\n", "-H"},
                            {{"TANDEM_X", "it's x"}, {"TANDEM_HOST_ID", "a"}, {"TANDEM_TOKEN", secret}})
                          ->wait();
  const std::string words = "<a b><it's><\"$HOME\"><*><><\\n><-H>it's x ";
  EXPECT_EQ(sorted_lines(result.out), (Arguments{words + "a", "[1] " + words})) << result.err;
  const std::string command = tandem::testing::read_file(ssh + ".command");
  EXPECT_NE(command.find("exec env"), std::string::npos) << command;
  EXPECT_EQ(command.find(secret), std::string::npos);
}

TEST_F(TandemRunHosts, FailureIsPrintedOnce) {
  const auto result = start("127.0.0.1,b:2", {kProgram, "throw", "2"})->wait();
  EXPECT_EQ(messages(result.err), "rank 2 of 3 on " + node_text(1) + " failed (exit status 1): boom on rank 2 of 3\n");
  EXPECT_EQ(result.status, 1);
}

TEST_F(TandemRunHosts, UnreachableHostEndsJob) {
  const auto result = start("127.0.0.1,b,down", {"true"})->wait();
  EXPECT_EQ(folder.shortened(result.err),
            "ssh: connect to host down port 22: Connection refused\n"
            "node 2 (down): its launcher is not running (DIR/ssh: exit status 255)\n");
  EXPECT_EQ(result.status, 1);
}

TEST_F(TandemRunHosts, SignalStopsAllHosts) {
  auto running = start("127.0.0.1,b", {kProgram, "stop"});
  ASSERT_TRUE(running->wait_for_output("ready\n", 2));
  auto starting = start("127.0.0.1,late", {"true"});
  for (auto* job : {&running, &starting}) (*job)->send_signal(SIGTERM);
  const auto result = running->wait();
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"[1] ready", "[1] stopped", "ready", "stopped"}));
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(starting->wait().status, 143);
}

TEST_F(TandemRunHosts, KilledNodeZeroEndsOtherHosts) {
  auto job = start("127.0.0.1,b:2", {kProgram, "stubborn"}, kShortShutdown);
  ASSERT_TRUE(job->wait_for_output("pid ", 3));
  const auto pidfds = pidfds_of(job->out());
  job->send_signal(SIGKILL);
  expect_ended(pidfds);
  // A launcher that has not reached node 0 notices it by the end of its stdin.
  const std::string command = "echo " + std::string(64, 'a') + " | " + kTandemRun + " --remote 1:1 -H 127.0.0.1,b true";
  EXPECT_EQ(Subprocess({"/bin/sh", "-c", command}).wait().status, 143);
}

}  // namespace
