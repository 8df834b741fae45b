// init_process_group between processes, as different launchers start them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

namespace td = tandem;
using td::distributed::FileDescriptor;
using td::distributed::listen_on;
using td::distributed::local_port;
using td::testing::TemporaryFolder;
using td::testing_support::run_program;
using td::testing_support::sorted_lines;
using td::testing_support::Subprocess;
using Variables = std::vector<std::pair<std::string, std::string>>;

const char* const kProgram = "tests/distributed/init_program";
const char* const kTandemRun = "distributed/launch/tandem-run";

std::string free_port() { return std::to_string(local_port(listen_on("127.0.0.1", 0).get())); }

/// One process per set of variables.
std::vector<Subprocess::Result> run_all(const std::vector<std::string>& args, const std::vector<Variables>& ranks) {
  std::vector<std::unique_ptr<Subprocess>> processes;
  std::vector<std::string> argv = {kProgram};
  argv.insert(argv.end(), args.begin(), args.end());
  for (const Variables& variables : ranks) processes.push_back(std::make_unique<Subprocess>(argv, variables));
  std::vector<Subprocess::Result> results;
  for (const auto& process : processes) results.push_back(process->wait());
  return results;
}

void expect_sums_of_three(const std::vector<Subprocess::Result>& results) {
  ASSERT_EQ(results.size(), 3u);
  const char* const halves[] = {"4", "2", "4"};
  for (size_t rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    EXPECT_EQ(results[rank].out, "rank " + r + " of 3 local " + r + " sum 6 half " + halves[rank] + "\n")
        << results[rank].err;
    EXPECT_EQ(results[rank].status, 0);
  }
}

TEST(InitProcessGroup, FourEnvironmentVariablesAreEnough) {
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"RANK", rank}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  }
  expect_sums_of_three(run_all({"sum", "env://"}, ranks));
}

TEST(InitProcessGroup, RanksCanReinitializeOnSamePort) {
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"RANK", rank}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  }
  for (const auto& result : run_all({"sum", "env://", "4"}, ranks)) {
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(sorted_lines(result.out).size(), 4u);
  }
}

TEST(InitProcessGroup, ReadsOpenMpiVariables) {
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"OMPI_COMM_WORLD_RANK", rank},
                     {"OMPI_COMM_WORLD_SIZE", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                     {"MASTER_PORT", port},
                     {"PMIX_NAMESPACE", "1234"}});
  }
  expect_sums_of_three(run_all({"sum", "env://"}, ranks));
}

TEST(InitProcessGroup, ReadsMpiexecVariables) {
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"PMI_RANK", rank},
                     {"PMI_SIZE", "3"},
                     {"MPI_LOCALRANKID", rank},
                     {"MPI_LOCALNRANKS", "3"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port}});
  }
  expect_sums_of_three(run_all({"sum", "env://"}, ranks));
}

TEST(InitProcessGroup, ReadsSlurmVariables) {
  // The port is derived from the job id.
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"SLURM_PROCID", rank},
                     {"SLURM_NTASKS", "3"},
                     {"SLURM_LOCALID", rank},
                     {"SLURM_NTASKS_PER_NODE", "3"},
                     {"SLURM_NNODES", "1"},
                     {"SLURM_STEP_NUM_TASKS", "3"},
                     {"SLURM_JOB_ID", std::to_string(getpid())},
                     {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}});
  }
  expect_sums_of_three(run_all({"sum", "env://"}, ranks));
}

TEST(InitProcessGroup, FileMethodConnectsProcesses) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Subprocess>> processes;
  for (const char* rank : {"0", "1", "2"}) {
    processes.push_back(std::make_unique<Subprocess>(
        std::vector<std::string>{kProgram, "sum", "file://" + (folder / "store") + "?world_size=3&rank=" + rank, "3"}));
  }
  for (const auto& process : processes) {
    const Subprocess::Result result = process->wait();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(sorted_lines(result.out).size(), 3u);
  }
}

TEST(InitProcessGroup, CanBeRepeatedUnderTandemRun) {
  // Twice: the launcher's store is reset.
  const auto result = run_program({kTandemRun, "--nproc-per-node", "3", kProgram, "sum", "env://", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"[1] rank 1 of 3 local 1 sum 6 half 2", "[1] rank 1 of 3 local 1 sum 6 half 2",
                                      "[2] rank 2 of 3 local 2 sum 6 half 4", "[2] rank 2 of 3 local 2 sum 6 half 4",
                                      "rank 0 of 3 local 0 sum 6 half 4", "rank 0 of 3 local 0 sum 6 half 4"}))
      << result.err;
}

TEST(InitProcessGroup, MissingLauncherIsAnError) {
  const auto result = run_program({kProgram, "sum", "env://"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err,
            "init_process_group: the rank is not known because no launcher set its variables\n"
            "  found: none\n"
            "  missing: RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT\n"
            "  start the program with tandem-run, torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT\n");
}

TEST(InitProcessGroup, SingleOpenMpiTaskFormsWorldOfOne) {
  const auto result = run_program({kProgram, "sum", "env://"}, {{"OMPI_COMM_WORLD_RANK", "0"},
                                                                {"OMPI_COMM_WORLD_SIZE", "1"},
                                                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(result.out, "rank 0 of 1 local 0 sum 1 half 1\n") << result.err;
}

/// A listener on a port after which another port is free.
FileDescriptor listen_before_free_port() {
  for (int attempt = 0;; ++attempt) {
    FileDescriptor listener = listen_on("127.0.0.1", 0);
    try {
      listen_on("127.0.0.1", local_port(listener.get()) + 1);
      return listener;
    } catch (const td::IoError&) {
      if (attempt == 100) throw;
    }
  }
}

TEST(InitProcessGroup, TorchrunAgentMovesStoreToNextPort) {
  const FileDescriptor agent = listen_before_free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"RANK", rank},
                     {"WORLD_SIZE", "3"},
                     {"LOCAL_RANK", rank},
                     {"LOCAL_WORLD_SIZE", "3"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(local_port(agent.get()))},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  }
  expect_sums_of_three(run_all({"sum", "env://"}, ranks));
}

TEST(InitProcessGroup, NextPortTakenUnderTorchrunIsAnError) {
  // torchrun's store uses MASTER_PORT; another program uses the next port.
  const FileDescriptor agent = listen_before_free_port();
  const int port = local_port(agent.get());
  const FileDescriptor other = listen_on("127.0.0.1", port + 1);
  const auto result = run_program({kProgram, "sum", "env://"}, {{"RANK", "0"},
                                                                {"WORLD_SIZE", "2"},
                                                                {"LOCAL_RANK", "0"},
                                                                {"LOCAL_WORLD_SIZE", "2"},
                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                {"MASTER_PORT", std::to_string(port)},
                                                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err,
            "store: cannot listen on 127.0.0.1:" + std::to_string(port + 1) +
                ": Address already in use\n  torchrun's agent listens on MASTER_PORT=" + std::to_string(port) +
                ", so the store needs the next port\n  choose another port for torchrun: --rdzv-endpoint "
                "HOST:PORT or --master-port PORT\n");
}

TEST(InitProcessGroup, NonMemberDeathDoesNotAffectSubgroup) {
  const std::string port = free_port();
  std::vector<Variables> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ranks.push_back({{"RANK", rank}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  }
  const auto results = run_all({"kill", "env://", "1"}, ranks);
  EXPECT_EQ(results[1].status, 128 + 9);
  for (const size_t rank : {0u, 2u}) {
    EXPECT_EQ(results[rank].out, "error of peer 1\nsum 4 again 4\n") << results[rank].err;
    EXPECT_EQ(results[rank].status, 0);
  }
}

}  // namespace
