// --max-restarts: which failures cause a restart, and the messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using tandem::testing::read_file;
using tandem::testing::TemporaryFolder;
using tandem::testing_support::messages;
using tandem::testing_support::run_program;
using tandem::testing_support::sorted_lines;
using tandem::testing_support::Subprocess;
using Arguments = std::vector<std::string>;

const std::string kProgram = "tests/distributed/launch_program";
const std::string kTandemRun = "distributed/launch/tandem-run";

Subprocess::Result run(const Arguments& arguments,
                       const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  auto result = run_program(arguments, variables);
  result.err = messages(result.err);
  return result;
}

TEST(Restart, AllRanksRestartWithNewStore) {
  const std::vector<Arguments> starts = {{kProgram, "--nproc", "3", "--max-restarts", "4"},
                                         {kProgram, "--nproc=3", "--max-restarts=4"},
                                         {kTandemRun, "--nproc-per-node", "3", "--max_restarts", "4", kProgram}};
  for (Arguments arguments : starts) {
    arguments.insert(arguments.end(), {"fail-until", "1", "2", "kill"});
    const auto result = run(arguments);
    Arguments expected;
    for (const std::string restart : {"0", "1", "2"}) {
      for (const std::string mark : {"", "[1] ", "[2] "})
        expected.push_back(mark + "restart " + restart + " joined by 3");
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted_lines(result.out), expected);
    EXPECT_EQ(result.err,
              "rank 1 of 3 failed (killed by SIGKILL)\nrestart 1 of 4\n"
              "rank 1 of 3 failed (killed by SIGKILL)\nrestart 2 of 4\n");
    EXPECT_EQ(result.status, 0);
  }
}

TEST(Restart, ExhaustedRestartsAreReported) {
  const auto result = run({kProgram, "--nproc", "2", "--max-restarts", "1", "fail-until", "0", "9", "throw"});
  EXPECT_EQ(result.err,
            "rank 0 of 2 failed (exit status 1): boom 0\nrestart 1 of 1\n"
            "rank 0 of 2 failed (exit status 1): boom 1\nno restart: --max-restarts 1 is reached\n");
  EXPECT_EQ(result.status, 1);
}

TEST(Restart, SingleRankIsRestarted) {
  const auto result = run({kProgram, "--max-restarts", "1", "fail-until", "0", "1", "kill"});
  EXPECT_EQ(result.out, "restart 0 joined by 1\nrestart 1 joined by 1\n");
  EXPECT_EQ(result.err, "rank 0 of 1 failed (killed by SIGKILL)\nrestart 1 of 1\n");
  EXPECT_EQ(result.status, 0);
}

TEST(Restart, EachAttemptGetsOwnVariables) {
  const auto result = run({kTandemRun, "--rdzv-id", "job", "--max-restarts", "2", "sh", "-c",
                           "echo $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS "
                           "$TANDEM_TOKEN; exit 5"});
  std::set<std::string> tokens;
  Arguments rest;
  for (const std::string& line : sorted_lines(result.out)) {
    tokens.insert(line.substr(line.rfind(' ') + 1));
    rest.push_back(line.substr(0, line.rfind(' ')));
  }
  EXPECT_EQ(rest, (Arguments{"job 0 2", "job-restart-1 1 2", "job-restart-2 2 2"}));
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_EQ(result.status, 1);
}

TEST(Restart, UsageErrorsAreNotRetried) {
  const auto result = run({kTandemRun, "--max-restarts", "3", "sh", "-c", "echo once; exit 2"});
  EXPECT_EQ(result.out, "once\n");
  EXPECT_EQ(result.err,
            "rank 0 of 1 failed (exit status 2)\n"
            "no restart: exit status 2 means a usage error\n");
  EXPECT_EQ(result.status, 1);
}

TEST(Restart, MissingProgramIsTriedOnce) {
  const auto result = run({kTandemRun, "--max-restarts", "3", "./no/such/program"});
  EXPECT_EQ(result.err, "launch: cannot run './no/such/program': No such file or directory\n");
  EXPECT_EQ(result.status, 1);
}

TEST(Restart, SignalEndsJobWithoutRestart) {
  Subprocess polite({kProgram, "--nproc", "2", "--max-restarts", "3", "stop"});
  ASSERT_TRUE(polite.wait_for_output("ready\n", 2));
  polite.send_signal(SIGTERM);
  const auto stopped = polite.wait();
  EXPECT_EQ(stopped.err.find("restart"), std::string::npos) << stopped.err;
  EXPECT_EQ(stopped.status, 143);

  // The signal arrives after a failure of the program; the job still ends.
  Subprocess rude(
      {kTandemRun, "--max-restarts", "3", "sh", "-c", "trap 'exit 7' INT; echo ready; while :; do sleep 0.01; done"});
  ASSERT_TRUE(rude.wait_for_output("ready\n"));
  rude.send_signal(SIGINT);
  const auto failed = rude.wait();
  EXPECT_EQ(failed.out, "ready\n");
  EXPECT_EQ(failed.err, "rank 0 of 1 failed (exit status 7)\n");
  EXPECT_EQ(failed.status, 130);
}

TEST(Restart, RanksIgnoringSigtermAreKilledBeforeRestart) {
  const TemporaryFolder folder;
  // Rank 0 of the first attempt only ends with SIGKILL; the second attempt checks that it has ended.
  const std::string script =
      "cd " + folder.path() +
      "\nif [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then"
      "\n  if [ $RANK = 0 ]; then if kill -0 $(cat pid); then echo alive; else echo gone; fi; fi"
      "\nelif [ $RANK = 0 ]; then trap '' TERM; echo $$ > new; mv new pid; while :; do sleep 0.05; done"
      "\nelse while [ ! -e pid ]; do sleep 0.01; done; exit 3; fi";
  const auto result = run({kTandemRun, "--nproc-per-node", "2", "--max-restarts", "1", "--redirects", "2", "--log-dir",
                           folder.path(), "sh", "-c", script},
                          {{"TANDEM_SHUTDOWN_TIMEOUT_S", "2"}});
  EXPECT_EQ(result.out, "gone\n");
  EXPECT_EQ(result.err, "rank 1 of 2 failed (exit status 3)\nrestart 1 of 1\n");
  EXPECT_EQ(result.status, 0);
}

TEST(Restart, AttemptsWriteSeparateLogs) {
  const TemporaryFolder base;
  const std::string folder = base / "logs";
  const std::string script = "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = $0 ]";
  for (const bool again : {false, true}) {
    const std::string wanted = again ? "1" : "2";
    const auto result = run({kTandemRun, "--max-restarts", "2", "--log-dir", folder, "sh", "-c", script, wanted});
    std::string expected = "rank 0 of 1 failed (exit status 1)\n  last lines of " + folder +
                           "/rank-0.log:\n    attempt 0\nrestart 1 of 2\n";
    if (!again) {
      expected += "rank 0 of 1 failed (exit status 1)\n  last lines of " + folder +
                  "/rank-0.restart-1.log:\n    attempt 1\nrestart 2 of 2\n";
    }
    EXPECT_EQ(result.err, expected);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(read_file(folder + "/rank-0.log"), "attempt 0\n");
    EXPECT_EQ(read_file(folder + "/rank-0.restart-1.log"), "attempt 1\n");
    // The second job has one attempt fewer; logs of the first job must not be used.
    EXPECT_EQ(std::filesystem::exists(folder + "/rank-0.restart-2.log"), !again);
  }
}

TEST(Restart, FixedPortIsReusedByRestarts) {
  const auto port = run({kTandemRun, "sh", "-c", "echo $MASTER_PORT"});
  const auto result =
      run({kTandemRun, "--nproc-per-node", "2", "--master-port", port.out.substr(0, port.out.size() - 1),
           "--max-restarts", "3", kProgram, "fail-until", "0", "3", "kill"});
  EXPECT_NE(result.err.find("restart 3 of 3\n"), std::string::npos) << result.err;
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace
