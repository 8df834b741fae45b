// Runs the function of a rank and distinguishes root causes from secondary failures. Private to distributed/.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct RankOutcome {
  std::exception_ptr error;  ///< null if f returned
  std::string text;          ///< text of the error
  bool is_comm_error = false;
  bool is_secondary = false;  ///< a CommError caused by the failure of another rank; not reported again
};

/// Calls f(context) and captures its exception.
TANDEM_API RankOutcome call_rank_function(const RankFunction& f, Context& context, FailureBoard& failures);

/// Result of a job whose ranks are threads.
struct ThreadJobResult {
  std::exception_ptr error = {};  ///< root cause; null if all ranks returned
  int rank = -1;                  ///< the rank that threw `error`
  std::string text = {};          ///< text of `error`
  bool stopped = false;           ///< the ranks agreed to stop, see Context::should_stop
};

/// run_threads(), but returns the failure instead of throwing it.
TANDEM_API ThreadJobResult run_thread_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout,
                                            const RankFunction& f);

/// run_threads() for launch(): handles interrupts and prints the failure to stderr. Returns the exit status.
TANDEM_API int run_device_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout,
                                const RankFunction& f);

/// Runs f as the rank of this process on `device`: joins the store, calls f and reports the result to the other ranks.
/// If `environment` is null, the process is the only rank. Returns the exit status.
TANDEM_API int run_rank_process(const RankEnvironment* environment, std::chrono::milliseconds timeout, Device device,
                                const RankFunction& f);

}}}  // namespace tandem::v0::distributed
