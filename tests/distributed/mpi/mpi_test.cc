// The mpi backend under a real mpirun.
#include <gtest/gtest.h>

#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include <tandem/tests/support/subprocess.h>

namespace tandem { namespace {

using testing_support::open_pidfd;
using testing_support::sorted_lines;
using testing_support::Subprocess;
using testing_support::wait_for_end;

const char* const kProgram = "tests/distributed/mpi/mpi_program";
const char* const kName = "mpi (Open MPI v";

Subprocess::Result run(int world_size, const std::vector<std::string>& args) {
  std::vector<std::string> argv = {"/usr/bin/mpirun",
                                   "--allow-run-as-root",
                                   "--oversubscribe",
                                   "--mca",
                                   "btl",
                                   "self,vader,tcp",
                                   "--mca",
                                   "btl_tcp_if_include",
                                   "lo",
                                   "-np",
                                   std::to_string(world_size),
                                   kProgram};
  argv.insert(argv.end(), args.begin(), args.end());
  return Subprocess(argv).wait(std::chrono::seconds(100));
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Mpi, OperationsMatchClosedForms) {
  for (const int world_size : {2, 3}) {
    const auto result = run(world_size, {"operations"});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_EQ(count(result.err, kName), 1) << result.err;
  }
}

TEST(Mpi, OverlappingGroupsAreMadeInAnyOrder) {
  for (const char* backend : {"auto", "mpi", "gloo"}) {
    const auto result = run(3, {"groups", backend});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_EQ(count(result.err, kName), std::string(backend) == "gloo" ? 0 : 13) << result.err;
  }
}

TEST(Mpi, MismatchIsReportedBeforeDataIsTransferred) {
  const auto result = run(2, {"mismatch"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"rank 0: calls do not match across ranks",
                                                                "rank 1: calls do not match across ranks"}));
}

TEST(Mpi, UnusableRanksAreRefusedByName) {
  const auto threads = run(1, {"threads"});
  EXPECT_EQ(threads.out,
            "ProcessGroup: backend mpi needs one process for each rank, but the ranks are threads of one process; use "
            "auto, shm or gloo\n");
  const auto late = run(3, {"late", "gloo"});
  std::vector<std::string> expected;
  for (const char* rank : {"0", "1"}) {
    expected.push_back(std::string("  [rank ") + rank +
                       "] group 'ranks 0-1': rank 0 cannot use the mpi backend: MPI is not initialized, and the group "
                       "has 2 of MPI's 3 ranks; use mpi for the default group too");
  }
  for (const char* rank : {"0", "1"}) {
    expected.push_back(std::string("[rank ") + rank + ", group 'ranks 0-1'] barrier #1 failed");
  }
  EXPECT_EQ(sorted_lines(late.out), expected) << late.err;
}

TEST(Mpi, AbortReachesRanksInsideMpiAndFreesNoMemory) {
  const auto result = run(3, {"abort"});
  EXPECT_NE(result.status, 0);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(count(result.err, std::string("[rank ") + rank +
                                    ", group 'ranks 0-2'] all_reduce #1 failed\n  rank 1: has seen enough"),
              1)
        << result.err;
  }
}

TEST(Mpi, DeathEndsJobWithRankAndOperation) {
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    const auto result = kill_number % 2 == 0 ? run(3, {"die"}) : run(3, {"die", "mpi"});
    EXPECT_NE(result.status, 0);
    const size_t ours = result.err.find("all_reduce #4 failed\n  rank 1: died (its connection closed)");
    const size_t theirs = result.err.find("run noticed that process rank 1");
    EXPECT_LT(ours, theirs) << result.err;
    std::istringstream pids(result.out);
    int num_ended = 0;
    for (pid_t pid = 0; pids >> pid;) {
      const int pidfd = open_pidfd(pid);  // fails if mpirun has already reaped the process
      num_ended += pidfd < 0 || wait_for_end(pidfd) ? 1 : 0;
      close(pidfd);
    }
    EXPECT_EQ(num_ended, 3) << result.out;
  }
}

TEST(Mpi, RanksWithoutMpirunUseOtherBackends) {
  EXPECT_EQ(Subprocess({kProgram, "mismatch", "--nproc", "2"}).wait().status, 0);
  const auto result = Subprocess({kProgram, "late", "--nproc", "2"}).wait();
  EXPECT_EQ(count(result.out,
                  "group 'ranks 0-1': rank 0 cannot use the mpi backend: the program was not started by mpirun or srun "
                  "--mpi=pmix\n"),
            2)
      << result.err;
}

}}  // namespace tandem
