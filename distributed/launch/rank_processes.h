// The launcher: starts ranks as processes, hosts their store, watches over them, says what went wrong.  Private to
// distributed/; launch, spawn and tandem-run share it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_output.h>

namespace tandem::inline v0::distributed {

struct JobOptions {
  int num_ranks = 1;
  std::string program = "/proc/self/exe";  ///< looked for in PATH where it has no slash
  std::vector<std::string> arguments;      ///< argv, with argv[0]
  Variables variables;                     ///< besides rank_variables
  std::vector<std::string> unset;          ///< names of variables that ranks do not get
  std::string store_host = "127.0.0.1";
  int store_port = 0;  ///< 0: any free one
  std::string log_dir;
  OutputTarget stdout_target = OutputTarget::kShow;
  OutputTarget stderr_target = OutputTarget::kShow;
  bool handle_signals = true;  ///< SIGINT and SIGTERM of this process stop the job
};

struct JobResult {
  int status = 0;        ///< 0, 1, or 130 / 143 where a signal stopped the job
  int failed_rank = -1;  ///< the one that failed first
  std::string message;   ///< "rank 2 of 4 failed (exit status 1): ..."; empty where none failed
};

/// Runs the job to its end.  Call it where no other thread depends on this one: it blocks, and ranks die with the
/// calling thread.  Throws IoError where the job could not be started (then nothing is left running).
TANDEM_API JobResult run_job(const JobOptions& options);

}  // namespace tandem::inline v0::distributed
