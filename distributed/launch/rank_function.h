// Running a rank's function and telling a mistake from its consequences.  Private to distributed/.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/store/failure_board.h>

namespace tandem::inline v0::distributed {

struct RankOutcome {
  std::exception_ptr error;  ///< null: f returned
  std::string text;          ///< of the error
  bool consequence = false;  ///< a CommError after another rank had failed: not to be shown again
};

/// Calls f(context) and keeps what it throws.
TANDEM_API RankOutcome call_rank_function(const RankFunction& f, Context& context, FailureBoard& failures);

/// Runs f as a rank that is a process of its own, or as the only rank where `environment` is null: joins the store,
/// runs f, tells the others how it ended.  Returns the exit status.
TANDEM_API int run_rank_process(const RankEnvironment* environment, std::chrono::milliseconds timeout,
                                const RankFunction& f);

}  // namespace tandem::inline v0::distributed
