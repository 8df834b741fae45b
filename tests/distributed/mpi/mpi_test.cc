// The mpi backend under a real mpirun.
#include <gtest/gtest.h>

#include <poll.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <tandem/tests/support/subprocess.h>

namespace tandem { namespace {

using testing_support::open_pidfd;
using testing_support::sorted_lines;
using testing_support::Subprocess;

const char* const kProgram = "tests/distributed/mpi/mpi_program";
const char* const kName = "mpi (Open MPI v";

Subprocess::Result run(int world_size, const std::vector<std::string>& args, const char* transports = "self,vader,tcp",
                       const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  std::vector<std::string> argv = {"/usr/bin/mpirun",
                                   "--allow-run-as-root",
                                   "--oversubscribe",
                                   "--mca",
                                   "btl",
                                   transports,
                                   "--mca",
                                   "btl_tcp_if_include",
                                   "lo",
                                   "-np",
                                   std::to_string(world_size)};
  for (const auto& [name, value] : variables) argv.insert(argv.end(), {"-x", name + "=" + value});
  argv.push_back(kProgram);
  argv.insert(argv.end(), args.begin(), args.end());
  return Subprocess(argv).wait(std::chrono::seconds(60));
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Mpi, OperationsMatchClosedForms) {
  for (const int world_size : {2, 3}) {
    const auto result = run(world_size, {"operations", world_size == 2 ? "mpi" : "launch", "hosts"});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_EQ(count(result.err, kName), 1) << result.err;
  }
}

TEST(Mpi, OverlappingGroupsAreMadeInAnyOrder) {
  for (const char* backend : {"auto", "mpi", "gloo"}) {
    const auto result = run(3, {"groups", backend, "hosts"});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_EQ(count(result.err, kName), std::string(backend) == "gloo" ? 0 : 13) << result.err;
  }
}

TEST(Mpi, AutoUsesSharedMemoryOnOneHost) {
  const auto result = run(3, {"groups", "auto"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(count(result.err, kName), 0) << result.err;
}

TEST(Mpi, RanksThatAreNotMpisUseOtherBackendsTogether) {
  const auto automatic = run(3, {"groups", "auto", "swapped"});
  EXPECT_EQ(automatic.status, 0) << automatic.out << automatic.err;
  const auto explicitly = run(3, {"groups", "mpi", "swapped"});
  EXPECT_EQ(explicitly.status, 1);
  EXPECT_GE(count(explicitly.err, "the mpi backend cannot be used by rank 2: its rank in MPI is 1\n"), 1)
      << explicitly.err;
}

TEST(Mpi, SizeIsThatOfMpirunInsideLargerSlurmStep) {
  const auto result = run(2, {"mismatch", "mpi"}, "self,vader", {{"SLURM_STEP_NUM_TASKS", "16"}});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(Mpi, WorkerPollsAtIntervals) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"polls", "mpi"}, {"polls", "mpi", "hosts"}}) {
    const auto result = run(2, args);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
  }
}

TEST(Mpi, WorkerDoesNotSleepThroughStart) {
  const auto result = run(2, {"sleep", "mpi"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(Mpi, CountsLiveUntilCompletion) {
  const auto result = run(3, {"counts", "mpi"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST(Mpi, LargeBuffersAreFreed) {
  const auto result = run(2, {"memory", "mpi"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(Mpi, SizeThatMpiCannotCountFailsOnAllRanks) {
  const auto result = run(2, {"huge", "mpi"});
  EXPECT_EQ(count(result.out, "mpi: the tensors have 2147483648 elements (at most 2147483647)"), 2) << result.out;
  EXPECT_EQ(count(result.out, "[rank 1 of 2] all_to_all #1 failed\n  rank 0: "), 1) << result.out;
}

TEST(Mpi, ForkedProcessEndsWithoutMpi) {
  const auto result = run(2, {"fork", "launch", "hosts"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(count(result.err, kName), 1) << result.err;
}

TEST(Mpi, ErrorOfCommunicatorIsReported) {
  const auto result = run(2, {"refuse", "mpi"});
  EXPECT_EQ(count(result.out, "barrier #1 failed\n"), 2) << result.err;
  EXPECT_EQ(count(result.out, "group 'ranks 0-1': MPI_Comm_create_group failed with code"), 2) << result.out;
}

TEST(Mpi, MismatchIsReportedBeforeDataIsTransferred) {
  const auto result = run(2, {"mismatch", "mpi"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"rank 0: calls do not match across ranks",
                                                                "rank 1: calls do not match across ranks"}));
}

TEST(Mpi, UnusableRanksAreRefusedByName) {
  const auto threads = run(1, {"threads", "launch"});
  EXPECT_EQ(threads.out,
            "ProcessGroup: backend mpi needs one process for each rank, but the ranks are threads of one process; use "
            "auto, shm or gloo\n");
  const auto late = run(3, {"late", "gloo"});
  // Both ranks find the reason; the slower one may instead receive the error of the faster one.
  EXPECT_EQ(count(late.out,
                  "the mpi backend cannot be used by rank 1: MPI is not initialized, and the group has 2 of "
                  "MPI's 3 ranks; first create a group of all ranks with mpi\n"),
            2)
      << late.out << late.err;
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(count(late.out, std::string("[rank ") + rank + ", group 'ranks 0-1'] barrier #1 failed\n"), 1)
        << late.out;
  }
}

TEST(Mpi, AbortReachesRanksInsideMpiAndFreesNoMemory) {
  for (const char* how : {"mpi", "auto"}) {
    const auto result = run(3, {"abort", how, "hosts"});
    for (const char* rank : {"0", "1", "2"}) {
      EXPECT_EQ(count(result.out, std::string("[rank ") + rank +
                                      ", group 'ranks 0-2'] all_reduce #1 failed\n  rank 1: has seen enough"),
                1)
          << result.out << result.err;
    }
    EXPECT_EQ(count(result.err, "the tensor was freed"), 0) << result.err;
  }
}

TEST(Mpi, AbortReachesRanksThatAreNotConnected) {
  const auto result = run(8, {"far", "mpi"}, "self,tcp");
  EXPECT_EQ(count(result.out, "[rank 6, group 'ranks 0-7'] all_reduce #2 failed\n  rank 1: has seen enough"), 1)
      << result.out << result.err;
}

TEST(Mpi, DeathEndsJobWithRankAndOperation) {
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    const auto result = run(3, {"die", kill_number % 2 == 0 ? "launch" : "mpi", "hosts"});
    EXPECT_NE(result.status, 0);
    const size_t ours = result.err.find("all_reduce #4 failed\n  rank 1: died (its connection closed)");
    const size_t theirs = result.err.find("run noticed that process rank 1");
    EXPECT_LT(ours, theirs) << result.err;
    std::istringstream pids(result.out);
    int num_ended = 0;
    for (pid_t pid = 0; pids >> pid;) {
      pollfd process{open_pidfd(pid), POLLIN, 0};  // fails if mpirun has already reaped the process
      num_ended += process.fd < 0 || poll(&process, 1, 2000) == 1 ? 1 : 0;
      close(process.fd);
    }
    EXPECT_EQ(num_ended, 3) << result.out;
  }
}

TEST(Mpi, RanksWithoutMpirunUseOtherBackends) {
  EXPECT_EQ(Subprocess({kProgram, "mismatch", "--nproc", "2"}).wait().status, 0);
  const auto result = Subprocess({kProgram, "late", "--nproc", "2"}).wait();
  EXPECT_EQ(
      count(result.out,
            "group 'ranks 0-1': the mpi backend cannot be used by rank 1: the program was not started by mpirun or "
            "srun --mpi=pmix\n"),
      2)
      << result.err;
}

}}  // namespace tandem
