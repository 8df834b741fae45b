#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/version.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using tandem::testing::read_file;
using tandem::testing::TemporaryFolder;
using tandem::testing_support::pidfds_of;
using tandem::testing_support::run_program;
using tandem::testing_support::sorted_lines;
using tandem::testing_support::Subprocess;
using tandem::testing_support::wait_for_end;
using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

const std::string kProgram = "tests/distributed/launch_program";

Subprocess::Result run(Arguments arguments) {
  arguments.insert(arguments.begin(), "distributed/launch/tandem-run");
  return run_program(arguments);
}

TEST(TandemRun, StartsTandemPrograms) {
  for (const std::string flag : {"--nproc-per-node=2", "--nproc_per_node=2", "--nproc=2"}) {
    const auto result = run({flag, "--standalone", "--nnodes=1:1", "--node-rank=0", "--max_restarts", "0",
                             "--monitor-interval", "5", "--no-python", kProgram, "exchange"});
    EXPECT_EQ(sorted_lines(result.out), (Arguments{"[1] sum 10", "sum 10"}));
    EXPECT_EQ(result.status, 0);
  }
}

TEST(TandemRun, ForwardsFlagsOfProgram) {
  const auto result = run({kProgram, "say", "--nnodes", "3", "--help"});
  EXPECT_EQ(result.out, "rank 0 of 1 local 0 of 1 args --nnodes 3 --help\n");
  const auto separated = run({"--", kProgram, "say", "-t"});
  EXPECT_EQ(separated.out, "rank 0 of 1 local 0 of 1 args -t\n");
}

TEST(TandemRun, StartsArbitraryPrograms) {
  const auto result = run({"--nproc-per-node", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE"});
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"0 of 2", "[1] 1 of 2"}));
  EXPECT_EQ(result.status, 0);
}

TEST(TandemRun, FailureEndsProgramsWithoutStore) {
  const auto result = run({"--nproc-per-node", "2", "sh", "-c", "if [ $RANK = 1 ]; then exit 3; else sleep 1000; fi"});
  EXPECT_EQ(result.err, "rank 1 of 2 failed (exit status 3)\n");
  EXPECT_EQ(result.status, 1);
}

TEST(TandemRun, RedirectsAndTeesPerStream) {
  const TemporaryFolder base;
  const std::string folder = base / "streams";
  const auto result = run({"-r", "1", "-t", "2", "--log_dir", folder, "sh", "-c", "echo out; echo err >&2"});
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "[0] err\n");
  EXPECT_EQ(sorted_lines(read_file(folder + "/rank-0.log")), (Arguments{"err", "out"}));
  const auto quiet = run({"--log-dir", folder, "sh", "-c", "echo out; echo err >&2"});
  EXPECT_EQ(quiet.out + quiet.err, "");
  EXPECT_EQ(read_file(folder + "/rank-0.log"), "out\nerr\n");
}

TEST(TandemRun, LogsMustBeRegularFiles) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "rank-0.log").c_str(), 0600), 0);
  EXPECT_EQ(folder.shortened(run({"--log-dir", folder.path(), "true"}).err),
            "launch: 'DIR/rank-0.log' is a FIFO, not a regular file\n");
  std::filesystem::remove(folder / "rank-0.log");
  std::filesystem::create_symlink("/dev/zero", folder / "rank-0.log");
  EXPECT_EQ(folder.shortened(run({"--log-dir", folder.path(), "true"}).err),
            "launch: 'DIR/rank-0.log' is a character device, not a regular file\n");
}

TEST(TandemRun, ClosedStandardStreamsAreReplacedAndOwnDescriptorsAreCloseOnExec) {
  for (const std::string closed : {">&-", "<&- >&- 2>&-"}) {
    const TemporaryFolder folder;
    const std::string command = kProgram + " --nproc 2 --tee --log-dir " + folder.path() + " descriptors " + closed;
    EXPECT_EQ(run_program({"/bin/sh", "-c", command}, {{"LAUNCHER", "without other descriptors"}}).status, 0);
    EXPECT_EQ(read_file(folder / "rank-1.log"), "auto\ngloo\n");
    const std::string job = "distributed/launch/tandem-run --nproc-per-node 2 " + kProgram + " exchange ";
    EXPECT_EQ(run_program({"/bin/sh", "-c", job + closed}).status, 0);
  }
}

TEST(TandemRun, LogDirOfARunningJobIsRejected) {
  const TemporaryFolder folder;
  run({"--log-dir", folder.path(), "sh", "-c", "distributed/launch/tandem-run --log-dir $0 true; echo status $?",
       folder.path()});
  const std::string log = read_file(folder / "rank-0.log");
  EXPECT_TRUE(log.starts_with("launch: '" + folder.path() + "' is in use by another run, process ")) << log;
  EXPECT_TRUE(log.ends_with("\n  wait until it ends, or choose another folder\nstatus 1\n")) << log;
}

TEST(TandemRun, InvalidFlagsAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "no program is given"},
      {{"--bogus", "x"}, "unknown flag --bogus"},
      {{"--nproc-per-node", "0", "x"},
       "--nproc-per-node: expected an integer from 1 to 1024, auto, cpu or gpu, got '0'"},
      {{"--nproc-per-node", "gpu", "x"},
       "--nproc-per-node gpu: this build of tandem has no CUDA support; build with --config=cuda"},
      {{"--nnodes", "1:2", "x"}, "--nnodes 1:2 is not supported: elastic jobs are not available; give one number"},
      {{"--nnodes", "0", "x"}, "--nnodes: expected an integer from 1 to 1024, got '0'"},
      {{"--nnodes", "2", "x"}, "--nnodes 2 requires --node-rank: the index of this host, from 0"},
      {{"--nnodes", "2", "--node-rank", "0", "x"},
       "--nnodes 2 requires --rdzv-endpoint HOST:PORT: an address of node 0's host and a free port of that host"},
      {{"--nnodes", "2", "--node-rank", "2", "x"}, "--node-rank: expected an integer from 0 to 1, got '2'"},
      {{"--nnodes", "2", "--node-rank", "0", "--standalone", "x"}, "--standalone requires --nnodes 1, got 2"},
      {{"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:0", "x"},
       "--rdzv-endpoint: expected an integer from 1 to 65535, got '0'"},
      {{"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", ":29400", "x"},
       "--rdzv-endpoint: expected HOST:PORT, got ':29400'"},
      {{"--rdzv-endpoint", "fd79::1", "x"},
       "--rdzv-endpoint: expected HOST:PORT, got 'fd79::1'; put brackets around an IPv6 address: [ADDRESS]:PORT"},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "x", "x"},
       "--master-port: expected an integer from 1 to 65535, got 'x'"},
      {{"--node-rank", "1", "x"}, "--node-rank: expected an integer from 0 to 0, got '1'"},
      {{"-H", "192.0.2.1,b", "x"},
       "--hosts: the first host must be this one\n  --hosts: cannot listen on 192.0.2.1:0: Cannot assign requested "
       "address"},
      {{"-H", "a:x", "x"}, "--hosts a:x: expected an integer from 1 to 1024, auto, cpu or gpu, got 'x'"},
      {{"-H", "a,,b", "x"}, "--hosts: expected HOST or HOST:N, got ''"},
      {{"-H", "a,b", "--nnodes", "2", "x"},
       "--hosts excludes --nnodes, --node-rank and --rdzv-endpoint; see also --master-addr and --master-port"},
      {{"--rdzv-backend", "etcd", "x"}, "--rdzv-backend etcd is not supported (expected c10d or static)"},
      {{"--max-restarts", "-1", "x"}, "--max-restarts: expected an integer from 0 to 1048576, got '-1'"},
      {{"--timeout", "soon", "x"}, "--timeout: expected a number of seconds, or 0 for no limit, got 'soon'"},
      {{"--gdb", "1", "x"}, "--gdb 1: the rank is not in [0, 1)"},
      {{"--gdb", "0", "--max-restarts", "1", "x"}, "--gdb and --max-restarts exclude each other"},
      {{"--master-port", "70000", "x"}, "--master-port: expected an integer from 0 to 65535, got '70000'"},
      {{"--tee", "3", "x"}, "--redirects and --tee require --log-dir"},
      {{"--tee", "4", "x"}, "--tee: expected an integer from 0 to 3, got '4'"},
  };
  for (const auto& [arguments, text] : cases) {
    const auto result = run(arguments);
    EXPECT_EQ(result.err, "tandem-run: " + text + "\nRun with --help for the flags.\n");
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.status, 2);
  }
}

TEST(TandemRun, HelpIsPrintedToStdout) {
  const auto result = run({"--help"});
  EXPECT_EQ(result.out.find("Runs PROGRAM as the ranks of a job on this host.\n"
                            "Usage: tandem-run [FLAGS] PROGRAM [ARGUMENTS]\n"),
            0u)
      << result.out;
  EXPECT_NE(result.out.find("\n  --nproc-per-node,--nproc_per_node,--nproc N\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\n  --timeout SECONDS"), std::string::npos) << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
}

TEST(TandemRun, VersionFlagPrintsLibraryVersion) {
  const auto result = run({"--version"});
  EXPECT_EQ(result.out, std::string("tandem-run ") + tandem::kVersion + "\n");
  EXPECT_EQ(result.status, 0);
}

TEST(TandemRun, MissingProgramIsAnError) {
  const auto result = run({"--nproc-per-node", "2", "./no/such/program"});
  EXPECT_NE(result.err.find("launch: cannot run './no/such/program': No such file or directory\n"), std::string::npos)
      << result.err;
  EXPECT_EQ(result.status, 1);
}

TEST(TandemRun, KilledLauncherEndsChildProcessesOfRanks) {
  for (const bool whole_group : {false, true}) {
    Subprocess job(
        {"distributed/launch/tandem-run", "--nproc-per-node", "2", "sh", "-c", "sleep 100 & echo pid $!; wait"}, {},
        Subprocess::Output::kSession);
    ASSERT_TRUE(job.wait_for_output("pid ", 2));
    const std::vector<int> pidfds = pidfds_of(job.out());
    kill(whole_group ? -job.pid() : job.pid(), SIGKILL);
    for (const int pidfd : pidfds) {
      EXPECT_TRUE(wait_for_end(pidfd));
      close(pidfd);
    }
  }
}

TEST(TandemRun, KilledRankEndsItsChildProcesses) {
  Subprocess job({"distributed/launch/tandem-run", "sh", "-c", "sleep 100 & echo pid $!; read line; wait"});
  ASSERT_TRUE(job.wait_for_output("pid "));
  const std::vector<int> pidfds = pidfds_of(job.out());
  const pid_t child = std::stoi(job.out().substr(4));
  kill(getpgid(child), SIGKILL);  // the process group of the rank
  EXPECT_EQ(job.wait().err, "rank 0 of 1 failed (killed by SIGKILL)\n");
  EXPECT_TRUE(wait_for_end(pidfds[0]));
  close(pidfds[0]);
}

TEST(TandemRun, NormalExitLeavesChildProcessesRunning) {
  Subprocess job({"distributed/launch/tandem-run", "sh", "-c", "sleep 100 & echo pid $!"});
  EXPECT_EQ(job.wait().status, 0);
  const pid_t child = std::stoi(job.out().substr(4));
  EXPECT_EQ(kill(child, SIGKILL), 0);
}

/// A directory with a program named gdb that prints its arguments and runs the debugged program.
std::string folder_of_a_gdb() {
  const std::string folder = testing::TempDir() + "/gdb_folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/gdb") << "#!/bin/sh\necho gdb \"$@\"\n[ -t 0 ] && echo on a terminal\nshift\nexec \"$@\"\n";
  std::filesystem::permissions(folder + "/gdb", std::filesystem::perms::owner_all);
  return folder;
}

TEST(TandemRun, GdbRunsOneRankAndDisablesTimeouts) {
  const std::string path = folder_of_a_gdb() + ":" + std::getenv("PATH");
  const Arguments program = {kProgram, "environment", "RANK", "TANDEM_TIMEOUT_S"};
  Arguments arguments = {"distributed/launch/tandem-run", "--nproc-per-node", "2", "--gdb", "1"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  const Variables variables = {{"PATH", path}, {"TANDEM_TIMEOUT_S", "7"}};
  const auto result = run_program(arguments, variables);
  EXPECT_EQ(sorted_lines(result.out), (Arguments{"RANK=0", "RANK=1", "TANDEM_TIMEOUT_S=0", "TANDEM_TIMEOUT_S=0",
                                                 "gdb --args " + kProgram + " environment RANK TANDEM_TIMEOUT_S"}));
  EXPECT_EQ(result.status, 0) << result.err;

  // The rank owns the terminal; afterwards the launcher owns it again.
  arguments = {"/bin/sh", "-c",
               "distributed/launch/tandem-run --nproc-per-node 2 --gdb 0 sh -c "
               "'[ $RANK = 1 ] || { read line; echo got $line; }'; read line; echo then $line"};
  Subprocess job(arguments, variables, Subprocess::Output::kSession);
  ASSERT_TRUE(job.wait_for_output("on a terminal"));
  job.type("apples\n");
  ASSERT_TRUE(job.wait_for_output("got apples"));
  job.type("pears\n");
  EXPECT_TRUE(job.wait_for_output("then pears"));
  EXPECT_EQ(job.wait().status, 0);
}

TEST(TandemRun, UnreadRestartMessageDoesNotBlockTheLauncher) {
  const std::string rank =
      "head -c 100000 /dev/zero; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1; kill $PPID; sleep 99";
  Subprocess job({"/bin/sh", "-c", "exec distributed/launch/tandem-run --max-restarts 9 sh -c '" + rank + "' 2>&1"});
  ASSERT_TRUE(wait_for_end(job.pidfd()));
  EXPECT_EQ(job.wait().status, 143);
}

TEST(TandemRun, SignalEndsLauncherWhileExecBlocks) {
  const TemporaryFolder folder;
  const std::string program = folder.write("program", std::string("#!/bin/sh\n"));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  sigset_t set;  // the kernel sends SIGIO when exec waits for the lease
  sigemptyset(&set);
  sigaddset(&set, SIGIO);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int fd = open(program.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
  Subprocess job({"distributed/launch/tandem-run", program});
  const timespec bound = {Subprocess::kBound.count(), 0};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &bound), SIGIO);
  job.send_signal(SIGTERM);
  EXPECT_EQ(job.wait(std::chrono::seconds(20)).status, 143);  // the lease ends after 45 seconds
  close(fd);
}

TEST(TandemRun, MissingGdbIsAUsageError) {
  const auto result = run_program({"distributed/launch/tandem-run", "--gdb", "0", "true"}, {{"PATH", "/nowhere"}});
  EXPECT_EQ(result.err, "tandem-run: --gdb: gdb is not in PATH\nRun with --help for the flags.\n");
  EXPECT_EQ(result.status, 2);
}

}  // namespace
