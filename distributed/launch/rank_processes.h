// The launcher behind launch, spawn and tandem-run: starts ranks as processes, hosts their store, monitors and restarts
// them, and reports failures. Private to distributed/.
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

/// This launcher among the launchers of a job on several hosts.
struct NodeOptions {
  int num_nodes = 1;
  int node = 0;
  std::string host;                         ///< address on which node 0's launcher listens
  int port = 0;                             ///< 0, on node 0: any free port
  std::string token;                        ///< wire::kTokenBytes bytes, the same on all launchers
  std::chrono::milliseconds timeout{0};     ///< for the launchers' rendezvous; 0: no timeout
  std::vector<std::string> hosts = {};      ///< by node; node 0 starts the launchers of the others, unless it is empty
  std::vector<std::string> arguments = {};  ///< of these launchers
};

struct JobOptions {
  int num_ranks = 1;                     ///< on this host
  std::string program;                   ///< searched in PATH if it contains no slash; empty: this program
  std::vector<std::string> arguments;    ///< argv, with argv[0]
  Variables variables;                   ///< in addition to rank_variables()
  std::vector<std::string> unset;        ///< variables removed from the environment of ranks
  std::string store_host = "127.0.0.1";  ///< used for jobs on one host
  int store_port = 0;                    ///< 0: any free port
  NodeOptions nodes;
  std::string run_id;           ///< empty: generated
  int max_restarts = 0;         ///< only the value of node 0 is used
  std::optional<int> gdb_rank;  ///< runs under gdb in the terminal; disables all timeouts
  std::string log_dir;
  std::string record_dir;                ///< of the ranks' flight recorders; empty: not set here
  bool is_record_dir_temporary = false;  ///< removed if no rank fails
  OutputTarget stdout_target = OutputTarget::kShow;
  OutputTarget stderr_target = OutputTarget::kShow;
  bool handle_signals = true;  ///< SIGINT and SIGTERM of this process stop the job
};

struct JobResult {
  int status = 0;        ///< 0; 1 after a failure; 2 if launchers conflict; 130 or 143 after a signal
  int failed_rank = -1;  ///< the rank that failed first, or -1; set on node 0 only
  std::string message;   ///< "rank 2 of 4 failed (exit status 1): ..."; empty without failure
};

/// Runs the job until it ends; prints the reason of each restart to stderr. Blocks. The ranks are killed when the
/// calling thread exits. Throws IoError or ResourceError if the job cannot be started, and CommError if the rendezvous
/// of the launchers fails; no rank is running then.
TANDEM_API JobResult run_job(const JobOptions& options);

}}}  // namespace tandem::v0::distributed
