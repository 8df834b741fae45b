// What tandem-run says of the flight records of its ranks, and SIGQUIT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using tandem::testing::read_file;
using tandem::testing::TemporaryFolder;
using tandem::testing_support::messages;
using tandem::testing_support::run_program;
using tandem::testing_support::Subprocess;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kProgram = "tests/distributed/launch_program";
const std::string kPlace = " \\([^ ]*launch_program.cc:[0-9]+\\)";

/// Runs ranks of which rank 1 does `how` instead of the third all_reduce.
Subprocess::Result run(const std::vector<std::string>& flags, const std::string& how) {
  std::vector<std::string> command = {"distributed/launch/tandem-run", "--nproc-per-node", "3"};
  command.insert(command.end(), flags.begin(), flags.end());
  for (const std::string& argument : {kProgram, std::string("operations"), std::string("1"), how}) {
    command.push_back(argument);
  }
  auto result = run_program(command);
  result.err = messages(result.err);
  return result;
}

TEST(FlightRecorderOfProcesses, RankWithAnotherOperationIsNamed) {
  const TemporaryFolder folder;
  const auto result = run({"--log-dir", folder.path(), "--redirects", "1"}, "broadcast");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      folder.shortened(result.err),
      MatchesRegex(

          "rank [0-2] of 3 failed (.|\n)*calls do not match across ranks\n(.|\n)*\n  rank 1 is at broadcast #3" +
          kPlace + ", the other ranks are at all_reduce #3" + kPlace +
          "\n  its last operations: DIR/rank-1.flight-default.txt\n"));
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = read_file(folder / ("rank-" + std::to_string(rank) + ".flight-default.txt"));
    EXPECT_THAT(text, HasSubstr(" all_reduce sum float32 [1], 'step', ")) << rank;
    EXPECT_THAT(text, HasSubstr(rank == 1 ? " broadcast from 0 float32 [1], " : " all_reduce sum float32 [1], tests/"));
  }
}

TEST(FlightRecorderOfProcesses, RankThatMissesADeadlineIsNamed) {
  const auto result = run({"--timeout", "1"}, "nothing");
  EXPECT_THAT(result.err,
              MatchesRegex("rank 1 of 3 did not take part in all_reduce (.|\n)*\n  rank 1 has called nothing after "
                           "all_reduce #2" +
                           kPlace + ", the other ranks are at all_reduce #3" + kPlace +
                           "\n  its last operations: .*/tandem-[0-9a-f]{16}/rank-1.flight-default.txt\n"));
  const std::string path = result.err.substr(result.err.rfind(": /") + 2);
  EXPECT_THAT(read_file(path.substr(0, path.size() - 1)), HasSubstr(": rank 1 of 3 did not take part in all_reduce "));
}

TEST(FlightRecorderOfProcesses, RankThatThrowsWrites) {
  const TemporaryFolder folder;
  const auto result = run({"--log-dir", folder.path()}, "throw");
  EXPECT_THAT(result.err, HasSubstr("rank 1 of 3 failed (exit status 1): boom\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("its last operations")));  // its own error says more
  EXPECT_THAT(read_file(folder / "rank-1.flight-default.txt"), HasSubstr(" UTC: this rank threw: boom\n"));
}

TEST(FlightRecorderOfProcesses, RecordsOfAnEarlierJobAreRemoved) {
  const TemporaryFolder folder;
  folder.write("rank-1.flight-default.txt", std::string("# group 'default', rank 1"));
  EXPECT_EQ(run({"--log-dir", folder.path()}, "everything").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "rank-1.flight-default.txt"));
}

TEST(FlightRecorderOfProcesses, RestartsHaveFilesOfTheirOwn) {
  const TemporaryFolder folder;
  const auto result = run({"--log-dir", folder.path(), "--max-restarts", "1", "--timeout", "1"}, "nothing");
  EXPECT_THAT(result.err, HasSubstr("/rank-1.flight-default.txt\nrestart 1 of 1\n"));
  EXPECT_THAT(result.err, HasSubstr("/rank-1.restart-1.flight-default.txt\n"));
}

TEST(FlightRecorderOfProcesses, QuitSignalWritesAndTheRankGoesOn) {
  const TemporaryFolder folder;
  const std::string path = folder / "rank-1.flight-default.txt";
  const auto result = run({"--log-dir", folder.path(), "--redirects", "1"}, "wait-for-quit");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("SIGQUIT: wrote " + path + "\n"));
  EXPECT_THAT(read_file(path), HasSubstr(" UTC: SIGQUIT\n"));
  EXPECT_FALSE(std::filesystem::exists(folder / "rank-0.flight-default.txt"));
}

TEST(FlightRecorderOfProcesses, HandlerOfTheProgramIsKept) {
  const TemporaryFolder folder;
  const auto result = run({"--log-dir", folder.path(), "--tee", "3"}, "own-quit");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "[1] own handler\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "rank-1.flight-default.txt"));
}

TEST(FlightRecorderOfProcesses, QuitSignalEndsProgramsWithoutLauncher) {
  const TemporaryFolder folder;
  const auto result =
      run_program({kProgram, "operations", "0", "quit"}, {{"TANDEM_FLIGHT_RECORDER_DIR", folder.path()}});
  EXPECT_EQ(result.status, 128 + SIGQUIT);
}

TEST(FlightRecorderOfProcesses, SuccessLeavesNoFiles) {
  const TemporaryFolder folder;
  const std::string command =
      "TMPDIR=$0 exec distributed/launch/tandem-run --nproc-per-node 2 " + kProgram + " operations 1 ";
  EXPECT_EQ(run_program({"/bin/sh", "-c", command + "everything", folder.path()}).status, 0);
  EXPECT_EQ(run_program({"/bin/sh", "-c", command + "wait-for-quit", folder.path()}).status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
