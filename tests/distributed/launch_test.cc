#include <tandem/distributed/launch.h>

#include <gtest/gtest.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch/launch_flags.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using tandem::distributed::listen_on;
using tandem::distributed::local_port;
using tandem::testing::read_file;
using tandem::testing::TemporaryFolder;
using tandem::testing_support::messages;
using tandem::testing_support::open_pidfd;
using tandem::testing_support::run_program;
using tandem::testing_support::sorted_lines;
using tandem::testing_support::Subprocess;
using tandem::testing_support::wait_for_end;
using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

const std::string kProgram = "tests/distributed/launch_program";

Arguments with_program(Arguments arguments) {
  arguments.insert(arguments.begin(), kProgram);
  return arguments;
}

Subprocess::Result run(const Arguments& arguments, const Variables& variables = {}) {
  return run_program(with_program(arguments), variables);
}

int free_port() { return local_port(listen_on("127.0.0.1", 0).get()); }

Variables torchrun_variables(int rank, int world_size, int port) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_RUN_ID", "job 7"}};
}

TEST(Launch, NoFlagsRunSingleRank) {
  const auto result = run({"say", "a", "b"});
  EXPECT_EQ(result.out, "rank 0 of 1 local 0 of 1 args a b\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
}

TEST(Launch, NprocStartsRanksWithPrefixedOutput) {
  for (const Arguments& flags : {Arguments{"--nproc", "3"}, Arguments{"--nproc=3"}}) {
    Arguments arguments = flags;
    arguments.insert(arguments.end(), {"say", "--nproc-like", "--", "--nproc", "9"});
    const auto result = run(arguments);
    EXPECT_EQ(sorted_lines(result.out), (Arguments{"[1] rank 1 of 3 local 1 of 3 args --nproc-like -- --nproc 9",
                                                   "[2] rank 2 of 3 local 2 of 3 args --nproc-like -- --nproc 9",
                                                   "rank 0 of 3 local 0 of 3 args --nproc-like -- --nproc 9"}));
    EXPECT_EQ(messages(result.err), "");
    EXPECT_EQ(result.status, 0);
  }
}

TEST(Launch, DevicesFlagStartsThreadRanks) {
  const auto result = run({"say", "--devices", "cpu:1,cpu"});
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"rank 0 of 2 local 0 of 2 args", "rank 1 of 2 local 1 of 2 args"}));
  EXPECT_EQ(messages(result.err), "");
  EXPECT_EQ(result.status, 0);
  const auto failing = run({"throw", "1", "--devices=cpu,cpu:1,cpu:2"});
  EXPECT_EQ(messages(failing.err), "rank 1 of 3 failed: boom on rank 1 of 3\n");
  EXPECT_EQ(failing.status, 1);
  const auto missing = run({"say", "--devices", "cuda:99"});
  EXPECT_EQ(missing.err.find("launch: "), 0u) << missing.err;
  EXPECT_EQ(missing.status, 1);
}

TEST(Launch, RanksShareOneStore) {
  const auto result = run({"exchange", "--nproc", "4"});
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"[1] sum 60", "[2] sum 60", "[3] sum 60", "sum 60"}));
  EXPECT_EQ(result.status, 0);
}

TEST(Launch, SetsTorchrunVariablesAndKeepsThreadVariables) {
  const auto result = run({"--nproc", "2", "environment", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                           "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS", "OMP_NUM_THREADS", "TANDEM_NUM_THREADS"},
                          {{"OMP_NUM_THREADS", "7"}, {"TANDEM_NUM_THREADS", "3"}});
  Arguments expected;
  for (const std::string rank : {"0", "1"}) {
    for (const std::string& line :
         {"RANK=" + rank, "LOCAL_RANK=" + rank, std::string("WORLD_SIZE=2"), std::string("LOCAL_WORLD_SIZE=2"),
          std::string("GROUP_RANK=0"), "ROLE_RANK=" + rank, std::string("ROLE_WORLD_SIZE=2"),
          std::string("MASTER_ADDR=127.0.0.1"), std::string("TORCHELASTIC_RESTART_COUNT=0"),
          std::string("TORCHELASTIC_MAX_RESTARTS=0"), std::string("OMP_NUM_THREADS=7"),
          std::string("TANDEM_NUM_THREADS=3")}) {
      expected.push_back(rank == "0" ? line : "[1] " + line);
    }
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted_lines(result.out), expected);
}

TEST(Launch, CoresAreDividedAmongRanks) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const auto result = run({"--nproc", "2", "cores"});
  std::multiset<int> seen;
  std::multiset<int> all;
  for (std::string line : sorted_lines(result.out)) {
    if (line.starts_with("[1] ")) line = line.substr(4);
    std::istringstream in(line);
    seen.insert(std::istream_iterator<int>(in), {});
  }
  const int copies = CPU_COUNT(&mask) >= 2 ? 1 : 2;  // separate cores per rank; all cores if there are too few
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    for (int i = 0; i < copies && CPU_ISSET(core, &mask); ++i) all.insert(core);
  }
  EXPECT_EQ(seen, all);
}

TEST(Launch, OversubscribedCoresWarnOnce) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const int cores = CPU_COUNT(&mask);
  if (cores > 16) CPU_ZERO(&mask);  // skip on large machines; the line below then checks that few ranks get no warning
  const int n = cores > 16 ? 2 : cores + 1;
  const auto result = run({"--nproc", std::to_string(n), "exchange"});
  const std::string warning = "launch: " + std::to_string(n) + " ranks on " + std::to_string(cores) +
                              (cores == 1 ? " core" : " cores") + ": the ranks share cores\n";
  EXPECT_EQ(result.err, n > cores ? warning : "");
}

TEST(Launch, DeviceFlagSelectsRankDevice) {
  const std::string gpu = tandem::cuda::is_built() ? "cuda:0 cuda:0\n" : "";
  const auto refused = [](const std::string& what, const std::string& device) {
    return what + ": " + device + ": this build of tandem has no CUDA support; build with --config=cuda\n";
  };
  const std::vector<std::tuple<Arguments, Variables, std::string>> cases = {
      {{"device"}, {}, "cpu cpu\n"},
      {{"device", "--device", "cpu"}, {{"TANDEM_DEVICE", "cuda"}}, "cpu cpu\n"},
      {{"device", "--device=auto"}, {}, gpu.empty() ? "cpu cpu\n" : gpu},
      {{"device", "--device=auto", "--nproc", "2"},
       {},
       gpu.empty() ? "[1] cpu cpu\ncpu cpu\n" : "[1] cuda:1 cuda:1\ncuda:0 cuda:0\n"},
      {{"device", "--device", "cuda"}, {}, gpu},
      {{"device"}, {{"TANDEM_DEVICE", "cuda"}}, gpu},
      {{"device", "--device", "cuda", "--nproc", "2"}, {}, gpu.empty() ? "" : "[1] cuda:1 cuda:1\ncuda:0 cuda:0\n"},
  };
  for (const auto& [arguments, variables, out] : cases) {
    const auto result = run(arguments, variables);
    std::string lines;
    for (const std::string& line : sorted_lines(result.out)) lines += line + "\n";
    EXPECT_EQ(lines, out);
    const std::string what = arguments.size() > 1 ? "launch: --device" : "TANDEM_DEVICE";
    EXPECT_EQ(messages(result.err), out.empty() ? refused(what, arguments.size() > 3 ? "cuda:1" : "cuda:0") : "");
    EXPECT_EQ(result.status, out.empty() ? 2 : 0);
  }
  if (gpu.empty()) return;
  const Variables two = {{"TANDEM_EMULATED_GPUS", "2"}};
  const auto crowded = run({"device", "--device", "cuda", "--nproc", "3"}, two);
  EXPECT_EQ(crowded.status, 2);
  EXPECT_EQ(messages(crowded.err),
            "launch: --device cuda: 3 ranks on this host but 2 GPUs; each rank needs its own GPU\n");
  EXPECT_EQ(sorted_lines(run({"device", "--device", "auto", "--nproc", "3"}, two).out)[0], "[1] cpu cpu");
}

TEST(Launch, RankWithPrivateGpusChoosesOneOfThem) {
  using tandem::Device;
  if (!tandem::cuda::is_built()) return;  // the error of such a build is tested above
  const int count = tandem::cuda::device_count();
  const auto chosen = [&](const std::string& choice, int local_rank, bool is_shown_its_own) {
    return tandem::distributed::choose_device("--device", choice, local_rank, 4 * count, is_shown_its_own);
  };
  EXPECT_EQ(chosen("cuda", count + 1, true), Device::cuda(count > 1 ? 1 : 0));
  EXPECT_EQ(chosen("auto", 0, true), Device::cuda(0));
  EXPECT_EQ(chosen("auto", 0, false), Device());
  EXPECT_THROW(chosen("cuda", 0, false), tandem::ValueError);

  // All ranks see the launcher's GPUs, which are too few.
  const Variables two = {{"TANDEM_EMULATED_GPUS", "2"}, {"CUDA_VISIBLE_DEVICES", "0,1"}};
  EXPECT_EQ(sorted_lines(run({"device", "--device", "auto", "--nproc", "3"}, two).out)[0], "[1] cpu cpu");
}

TEST(Launch, InvalidFlagsAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--nproc"}, "launch: --nproc needs a value\n"},
      {{"--nproc", "0"}, "launch: --nproc: expected an integer from 1 to 1024, auto, cpu or gpu, got '0'\n"},
      {{"--nproc", "-2"}, "launch: --nproc: expected an integer from 1 to 1024, auto, cpu or gpu, got '-2'\n"},
      {{"--nproc_per_node=0"},
       "launch: --nproc_per_node: expected an integer from 1 to 1024, auto, cpu or gpu, got '0'\n"},
      {{"--nproc=two"}, "launch: --nproc: expected an integer from 1 to 1024, auto, cpu or gpu, got 'two'\n"},
      {{"--nproc", "1025"}, "launch: --nproc: expected an integer from 1 to 1024, auto, cpu or gpu, got '1025'\n"},
      {{"--timeout", "-1"}, "launch: --timeout: expected a number of seconds, or 0 for no limit, got '-1'\n"},
      {{"--timeout=nan"}, "launch: --timeout: expected a number of seconds, or 0 for no limit, got 'nan'\n"},
      {{"--max-restarts", "many"}, "launch: --max-restarts: expected an integer from 0 to 1048576, got 'many'\n"},
      {{"--tee"}, "launch: --tee requires --log-dir\n"},
      {{"--tee=3", "--log-dir", "x"}, "launch: --tee takes no value, got '--tee=3'\n"},
      {{"--log-dir="}, "launch: --log-dir is empty\n"},
      {{"--device", "gpu"}, "launch: --device: expected cpu, cuda or auto, got 'gpu'\n"},
      {{"--device", "cpu", "--devices", "cpu"},
       "launch: --device (the device of every rank) and --devices (one rank per device) exclude each other\n"},
      {{"--devices", "cpu,gpu"}, "Device: 'gpu' is not one of cpu, cpu:N, cuda, cuda:N\n"},
      {{"--devices", "cpu,cpu:1,cpu:0"}, "launch: --devices 'cpu,cpu:1,cpu:0' names cpu twice\n"},
      {{"--devices", "cpu", "--nproc", "1"},
       "launch: --devices (ranks are threads) cannot be combined with --nproc, --log-dir and --max-restarts (ranks "
       "are processes)\n"},
  };
  for (const auto& [arguments, text] : cases) {
    const auto result = run(arguments);
    EXPECT_EQ(result.err, text);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.status, 2);
  }
}

TEST(Launch, IncompleteRankVariablesAreAnError) {
  const auto result = run({"say"}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(result.err,
            "rank variables: some are missing\n"
            "  found: RANK=1 WORLD_SIZE=2\n"
            "  missing: LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT\n");
  EXPECT_EQ(result.status, 2);
}

TEST(Launch, NprocInsideLaunchedRankIsRejected) {
  const std::string slurm = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=4";
  const std::string torchrun =
      "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500";
  for (const std::string& found : {torchrun, slurm + " SLURM_JOB_ID=7"}) {
    const auto result = run_program({"/bin/sh", "-c", "export " + found + "; " + kProgram + " --nproc 2 say"});
    EXPECT_EQ(result.err,
              "launch: --nproc, --log-dir, --tee and --max-restarts start ranks, but this process is already a rank\n"
              "  found: " +
                  found + "\n  remove the flags, or unset these variables to start ranks from here\n");
    EXPECT_EQ(result.status, 2);
  }
}

TEST(Launch, JoinsJobOfExternalLauncher) {
  const int port = free_port();
  std::vector<std::unique_ptr<Subprocess>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<Subprocess>(with_program({"exchange"}), torchrun_variables(r, 3, port)));
  }
  for (auto& rank : ranks) {
    const auto result = rank->wait();
    EXPECT_EQ(result.out, "sum 30\n");
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.status, 0);
  }
}

TEST(Launch, OnlyThrowingRankReportsUnderExternalLauncher) {
  const int port = free_port();
  std::vector<std::unique_ptr<Subprocess>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<Subprocess>(with_program({"throw", "1"}), torchrun_variables(r, 3, port)));
  }
  for (int r = 0; r < 3; ++r) {
    const auto result = ranks[static_cast<size_t>(r)]->wait();
    EXPECT_EQ(result.err, r == 1 ? "rank 1 of 3 failed: boom on rank 1 of 3\n" : "");
    EXPECT_EQ(result.status, 1);
  }
}

TEST(Launch, SurvivorsReportKilledRankUnderExternalLauncher) {
  for (const int killed : {0, 1}) {  // rank 0 hosts the store
    const int port = free_port();
    std::vector<std::unique_ptr<Subprocess>> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.push_back(std::make_unique<Subprocess>(with_program({"kill-when-all-joined", std::to_string(killed)}),
                                                   torchrun_variables(r, 3, port)));
    }
    for (int r = 0; r < 3; ++r) {
      const auto result = ranks[static_cast<size_t>(r)]->wait();
      if (r == killed) {
        EXPECT_EQ(result.status, 128 + SIGKILL);
        continue;
      }
      const std::string reason =
          killed == 0 ? "the connection to the store's host 127.0.0.1:" + std::to_string(port) + " was lost"
                      : "store: waiting for key 'never': rank 1 ";
      // A process killed with unread data resets its connection.
      const bool is_named = killed == 0 || result.err.ends_with(" died (its connection closed)\n") ||
                            result.err.ends_with(" (Connection reset by peer)\n");
      EXPECT_TRUE(is_named) << result.err;
      EXPECT_TRUE(result.err.starts_with("rank " + std::to_string(r) + " of 3 failed: ")) << result.err;
      EXPECT_NE(result.err.find(reason), std::string::npos) << result.err;
      EXPECT_EQ(result.status, 1);
    }
  }
}

TEST(Launch, ExceptionIsReportedOnce) {
  const auto only = run({"throw", "0"});
  EXPECT_EQ(only.err, "rank 0 of 1 failed: boom on rank 0 of 1\n");
  EXPECT_EQ(only.status, 1);
  for (const std::string rank : {"0", "2"}) {
    const auto result = run({"--nproc", "3", "throw", rank});
    EXPECT_EQ(messages(result.err), "rank " + rank + " of 3 failed (exit status 1): boom on rank " + rank + " of 3\n");
    EXPECT_EQ(result.status, 1);
  }
}

TEST(Launch, KilledRankIsReportedOnce) {
  for (const std::string mode : {"kill", "kill-in-collective"}) {
    for (const std::string rank : {"0", "2"}) {
      const auto result = run({"--nproc", "3", mode, rank});
      EXPECT_EQ(messages(result.err), "rank " + rank + " of 3 failed (killed by SIGKILL)\n");
      EXPECT_EQ(result.status, 1);
    }
  }
}

TEST(Launch, ForkedChildDoesNotHideDeathOfRank) {
  const auto result = run({"--nproc", "2", "kill-parent", "1"}, {{"TANDEM_SHUTDOWN_TIMEOUT_S", "0"}});
  EXPECT_EQ(messages(result.err), "rank 1 of 2 failed (killed by SIGKILL)\n");
  EXPECT_EQ(result.status, 1);
  const size_t at = result.out.find("pid ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(kill(std::stoi(result.out.substr(at + 4)), SIGKILL), 0);
}

TEST(Launch, ReportsExitsWithoutPidfdsAndWithIgnoredSigchld) {
  for (const std::string launcher : {"without pidfd_open", "ignores SIGCHLD"}) {
    const Variables variables = {{"LAUNCHER", launcher}};
    const TemporaryFolder folder;  // with logs there are no pipes, whose ends would wake the launcher
    EXPECT_EQ(run({"--nproc", "2", "--log-dir", folder.path(), "exchange"}, variables).status, 0);
    EXPECT_EQ(messages(run({"--nproc", "3", "kill", "2"}, variables).err), "rank 2 of 3 failed (killed by SIGKILL)\n");
  }
}

TEST(Launch, ExitStatusCollectedByTheProgramIsReportedAsUnknown) {
  const auto result = run({"--max-restarts", "1", "say"}, {{"LAUNCHER", "waits for all children"}});
  EXPECT_NE(result.err.find("rank 0 of 1 failed (exit status unknown): a SIGCHLD handler or another thread of the "
                            "launching program has waited for it; wait only for own children\n"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.status, 1);
}

TEST(Launch, LostStoreConnectionIsReportedWithReason) {
  const std::string lost = "it lost its connection to the store at 127.0.0.1:";
  const std::string reset = " was lost: Connection reset by peer\n";
  for (const std::string rank : {"0", "1"}) {
    const auto result = run({"--nproc", "2", "reset", rank});
    const std::string said = "rank " + rank + " of 2 failed: store: the connection to the store's host 127.0.0.1:";
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(reset), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("rank " + rank + " of 2 failed (exit status 1): " + lost), std::string::npos)
        << result.err;
    EXPECT_TRUE(result.err.ends_with(" (Connection reset by peer)\n")) << result.err;
    EXPECT_EQ(result.status, 1);
  }
  const auto returned = run({"--nproc", "2", "reset-and-return", "1"});
  EXPECT_NE(returned.err.find("rank 1 of 2 failed (exit status 0): " + lost), std::string::npos) << returned.err;
  // Under another launcher each rank prints its error.
  for (const int chosen : {0, 1}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Subprocess>> ranks;
    for (const int rank : {0, 1}) {
      ranks.push_back(std::make_unique<Subprocess>(with_program({"reset", std::to_string(chosen)}),
                                                   torchrun_variables(rank, 2, port)));
    }
    const std::string store = "127.0.0.1:" + std::to_string(port);
    const auto own = ranks[static_cast<size_t>(chosen)]->wait();
    EXPECT_EQ(own.err, "rank " + std::to_string(chosen) + " of 2 failed: store: the connection to the store's host " +
                           store + reset);
    const auto other = ranks[static_cast<size_t>(1 - chosen)]->wait();
    EXPECT_EQ(other.err, "rank " + std::to_string(1 - chosen) + " of 2 failed: store: waiting for key 'never': rank " +
                             std::to_string(chosen) + " lost its connection to the store at " + store +
                             " (Connection reset by peer)\n");
    for (const auto& result : {own, other}) EXPECT_EQ(result.status, 1);
  }
}

TEST(Launch, EarlyExitIsReportedWithStatus) {
  const auto with_status = run({"--nproc", "2", "exit", "0", "7"});
  EXPECT_NE(with_status.err.find("rank 0 of 2 failed (exit status 7)\n"), std::string::npos) << with_status.err;
  EXPECT_EQ(with_status.status, 1);
  const auto with_zero = run({"--nproc", "2", "exit", "1", "0"});
  EXPECT_NE(with_zero.err.find("rank 1 of 2 failed (exit status 0): it exited before its function returned\n"),
            std::string::npos)
      << with_zero.err;
  EXPECT_EQ(with_zero.status, 1);
}

TEST(Launch, StoreTimeoutNamesMissingKey) {
  const auto result = run({"--nproc", "2", "--timeout", "33.5", "timeout"});
  EXPECT_NE(messages(result.err).find("of 2 failed (exit status 1): store: key 'never' was not set within 0.0 s\n"),
            std::string::npos)
      << result.err;
}

TEST(Launch, TimeoutFlagAppliesToCollectives) {
  const Variables by_variable = {{"TANDEM_TIMEOUT_S", "0.4"}};
  for (const bool flag : {true, false}) {
    const auto result = flag ? run({"--nproc", "2", "--timeout", "0.4", "stuck", "1"})
                             : run({"--nproc", "2", "stuck", "1"}, by_variable);
    const std::string before =
        "rank 1 of 2 did not take part in barrier (collective 2) within 0.4 s; waiting: rank 0\n"
        "[rank 0 of 2] barrier #2 timed out after 0.4 s\n"
        "  shm\n"
        "  reached #2: ranks 0.  missing: rank 1 (last reached barrier #1, ";
    const std::string err = messages(result.err);
    EXPECT_TRUE(err.starts_with(before)) << err;
    EXPECT_NE(err.find(" s ago)\n  rank 1 has called nothing after barrier #1 ("), std::string::npos) << err;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 6) << err;
    EXPECT_EQ(result.status, 1);
  }
}

TEST(Launch, TimeoutOfZeroMeansNoDeadline) {
  for (const std::string n : {"1", "2"}) {
    const auto result = run({"--nproc", n, "--timeout", "0", "--max-restarts", "1", "fail-until", "0", "0", "throw"});
    EXPECT_NE(result.out.find("restart 0 joined by " + n + "\n"), std::string::npos) << result.err;
    EXPECT_EQ(result.status, 0);
  }
  const int port = free_port();
  std::vector<std::unique_ptr<Subprocess>> ranks;
  for (const int rank : {1, 0}) {
    Variables variables = torchrun_variables(rank, 2, port);
    variables.emplace_back("TANDEM_TIMEOUT_S", "0");
    ranks.push_back(std::make_unique<Subprocess>(with_program({"exchange"}), variables));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->wait().out, "sum 10\n");
}

TEST(Launch, FirstSignalRequestsCleanStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const std::string n : {"1", "2"}) {
      Subprocess job(with_program({"--nproc", n, "stop"}));
      ASSERT_TRUE(job.wait_for_output("ready\n", n == "2" ? 2 : 1));
      job.send_signal(signal);
      const auto result = job.wait();
      const Arguments two = {"[1] ready", "[1] stopped", "ready", "stopped"};
      EXPECT_EQ(sorted_lines(result.out), n == "2" ? two : (Arguments{"ready", "stopped"}));
      EXPECT_EQ(messages(result.err), "");
      EXPECT_EQ(result.status, 128 + signal);
    }
  }
}

TEST(Launch, SecondSignalKillsRanks) {
  const Variables never = {{"TANDEM_SHUTDOWN_TIMEOUT_S", "0"}};
  for (const std::string n : {"1", "2"}) {
    Subprocess job(with_program({"--nproc", n, "stubborn"}), never);
    ASSERT_TRUE(job.wait_for_output("pid ", n == "2" ? 2 : 1));
    job.send_signal(SIGINT);
    ASSERT_TRUE(job.wait_for_output("asked\n", n == "2" ? 2 : 1));
    job.send_signal(SIGTERM);
    const auto result = job.wait();
    EXPECT_EQ(result.status, 130);
    EXPECT_EQ(messages(result.err), "");
  }
}

TEST(Launch, RanksAreKilledTenSecondsAfterSignal) {
  const Variables two_seconds = {{"TANDEM_SHUTDOWN_TIMEOUT_S", "2"}};
  Subprocess several(with_program({"--nproc", "2", "stubborn"}), two_seconds);
  Subprocess single(with_program({"stubborn"}), two_seconds);
  ASSERT_TRUE(several.wait_for_output("pid ", 2));
  ASSERT_TRUE(single.wait_for_output("pid "));
  several.send_signal(SIGTERM);
  single.send_signal(SIGINT);
  EXPECT_EQ(several.wait().status, 143);
  EXPECT_EQ(single.wait().status, 130);
}

TEST(Launch, UnreadOutputDoesNotBlockSignals) {
  Subprocess job(with_program({"--nproc", "2", "flood"}));
  ASSERT_TRUE(job.wait_unread());
  job.send_signal(SIGINT);
  job.send_signal(SIGTERM);
  ASSERT_TRUE(wait_for_end(job.pidfd()));
  EXPECT_EQ(job.wait().status, 130);
}

TEST(Launch, RanksDieWithLauncher) {
  Subprocess job(with_program({"--nproc", "2", "stubborn"}));
  ASSERT_TRUE(job.wait_for_output("pid ", 2));
  std::vector<int> pidfds;
  std::string out = job.out();
  for (size_t at = out.find("pid "); at != std::string::npos; at = out.find("pid ", at + 1)) {
    pidfds.push_back(open_pidfd(std::stoi(out.substr(at + 4))));
    EXPECT_EQ(read_file("/proc/" + std::to_string(std::stoi(out.substr(at + 4))) + "/comm"), "launch_program\n");
  }
  ASSERT_EQ(pidfds.size(), 2u);
  job.send_signal(SIGKILL);
  for (const int pidfd : pidfds) {
    EXPECT_TRUE(wait_for_end(pidfd));
    close(pidfd);
  }
}

TEST(Launch, OutputLinesOfRanksAreNotMixed) {
  constexpr int kLines = 400;
  const auto result = run({"--nproc", "3", "lines", std::to_string(kLines)});
  const Arguments lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 3u * kLines);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "begin middle end"), kLines);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[1] begin middle end"), kLines);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[2] begin middle end"), kLines);
}

TEST(Launch, LastLineWithoutNewlineIsKept) {
  const auto result = run({"--nproc", "2", "unended"});
  EXPECT_NE(result.out.find("no end of line from 0"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("[1] no end of line from 1\n"), std::string::npos) << result.out;
}

TEST(Launch, LogDirReceivesRankOutput) {
  const TemporaryFolder base;
  const std::string folder = base / "a/logs";
  for (int i = 0; i < 2; ++i) {  // logs of the second run replace those of the first
    const auto result = run({"--nproc", "2", "--log-dir", folder, "say", "x"});
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(messages(result.err), "");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(read_file(folder + "/rank-0.log"), "rank 0 of 2 local 0 of 2 args x\n");
    EXPECT_EQ(read_file(folder + "/rank-1.log"), "rank 1 of 2 local 1 of 2 args x\n");
  }
}

TEST(Launch, TeeCopiesLogsToStdout) {
  const TemporaryFolder base;
  const std::string folder = base / "tee";
  const auto result = run({"--nproc=2", "--tee", "--log-dir=" + folder, "say"});
  EXPECT_EQ(sorted_lines(result.out),
            (Arguments{"[0] rank 0 of 2 local 0 of 2 args", "[1] rank 1 of 2 local 1 of 2 args"}));
  EXPECT_EQ(read_file(folder + "/rank-0.log"), "rank 0 of 2 local 0 of 2 args\n");
  EXPECT_EQ(read_file(folder + "/rank-1.log"), "rank 1 of 2 local 1 of 2 args\n");
}

TEST(Launch, FileSizeLimitTruncatesLogsWithoutFailure) {
  constexpr size_t kLimit = 1 << 20;  // ThreadSanitizer's runtime creates a file of half that size in each process
  constexpr int kLines = 70000;       // of 17 bytes
  const TemporaryFolder base;
  const std::string folder = base / "logs";
  Arguments command = with_program({"--nproc=2", "--tee", "--log-dir=" + folder, "lines", std::to_string(kLines)});
  command.insert(command.begin(), {"/bin/sh", "-c", "ulimit -f 2048; exec \"$@\"", "sh"});  // of 512 bytes each
  const auto result = run_program(command);
  EXPECT_EQ(messages(result.err), "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2 * kLines);
  EXPECT_EQ(read_file(folder + "/rank-0.log").size(), kLimit);
  EXPECT_EQ(read_file(folder + "/rank-1.log").size(), kLimit);
}

TEST(Launch, FailureShowsEndOfLog) {
  const TemporaryFolder base;
  const std::string folder = base / "tail";
  const auto result = run({"--nproc", "2", "--log-dir", folder, "exit", "1", "5"});
  EXPECT_EQ(messages(result.err), "rank 1 of 2 failed (exit status 5)\n  last lines of " + folder +
                                      "/rank-1.log:\n    last words of rank 1\n");
}

TEST(Launch, UnwritableLogDirIsAnError) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", std::string("in the way"));
  const auto result = run({"--nproc", "2", "--log-dir", file, "say"});
  EXPECT_EQ(messages(result.err).find("launch: cannot create the log directory '" + file + "': "), 0u) << result.err;
  EXPECT_EQ(result.status, 1);
}

}  // namespace
