// The launcher: starts ranks as processes, hosts their store, watches over them, starts them again, says what went wrong.
// Private to distributed/; launch, spawn and tandem-run share it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_output.h>

namespace tandem { inline namespace v0 { namespace distributed {

constexpr int kMaxNodes = 1024;

/// This launcher among those of a job on several hosts.
struct NodeOptions {
  int num_nodes = 1;
  int node = 0;
  std::string host;  ///< where node 0's launcher listens: an address of its host
  int port = 0;
  std::string token;                     ///< wire::kTokenBytes bytes that all launchers know
  std::chrono::milliseconds timeout{0};  ///< to come together, 0: no limit
};

struct JobOptions {
  int num_ranks = 1;                       ///< on this host
  std::string program = "/proc/self/exe";  ///< looked for in PATH where it has no slash
  std::vector<std::string> arguments;      ///< argv, with argv[0]
  Variables variables;                     ///< besides rank_variables
  std::vector<std::string> unset;          ///< names of variables that ranks do not get
  std::string store_host = "127.0.0.1";    ///< of one host's job
  int store_port = 0;                      ///< 0: any free one
  NodeOptions nodes;
  std::string run_id;           ///< empty: made up
  int max_restarts = 0;         ///< node 0's counts
  std::optional<int> gdb_rank;  ///< runs under gdb, with the terminal; then nobody has deadlines
  std::string log_dir;
  OutputTarget stdout_target = OutputTarget::kShow;
  OutputTarget stderr_target = OutputTarget::kShow;
  bool handle_signals = true;  ///< SIGINT and SIGTERM of this process stop the job
};

struct JobResult {
  int status = 0;        ///< 0, 1, or 130 / 143 where a signal stopped the job, 2 where launchers contradict each other
  int failed_rank = -1;  ///< the one that failed first; known on node 0
  std::string message;   ///< "rank 2 of 4 failed (exit status 1): ..."; empty where none failed
};

/// Runs the job to its end; says on stderr why it starts ranks again.  Call it where no other thread depends on this one:
/// it blocks, and ranks die with the calling thread.  Throws IoError or ResourceError where the job could not be
/// started, and CommError where the launchers of several hosts did not come together (then nothing is left running).
TANDEM_API JobResult run_job(const JobOptions& options);

}}}  // namespace tandem::v0::distributed
