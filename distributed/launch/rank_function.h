// Running a rank's function and telling a mistake from its consequences.  Private to distributed/.
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
  std::exception_ptr error;  ///< null: f returned
  std::string text;          ///< of the error
  bool consequence = false;  ///< a CommError after another rank had failed: not to be shown again
};

/// Calls f(context) and keeps what it throws.
TANDEM_API RankOutcome call_rank_function(const RankFunction& f, Context& context, FailureBoard& failures);

/// How a job of thread ranks ended.
struct ThreadRanksEnd {
  std::exception_ptr error = {};  ///< of the rank whose mistake it was; null: all returned
  int rank = -1;                  ///< which that is
  std::string text = {};          ///< of the error
  bool stopped = false;           ///< the ranks agreed to stop, see Context::should_stop
};

/// What run_threads does, with the end told and not thrown.
TANDEM_API ThreadRanksEnd run_thread_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout,
                                           const RankFunction& f);

/// The same as launch's ranks: with handlers for interrupts, the failure shown on stderr.  Returns the exit status.
TANDEM_API int run_device_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout,
                                const RankFunction& f);

/// Runs f as a rank that is a process of its own and computes on `device`, or as the only rank where `environment` is null:
/// joins the store, runs f, tells the others how it ended.  Returns the exit status.
TANDEM_API int run_rank_process(const RankEnvironment* environment, std::chrono::milliseconds timeout, Device device,
                                const RankFunction& f);

}}}  // namespace tandem::v0::distributed
