// SIGINT and SIGTERM in a rank: the first one asks it to stop after its current step.  Private to distributed/.
#pragma once

#include <chrono>
#include <csignal>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The signal that asked this process to stop, 0 if none has.
TANDEM_API int interrupt_signal();

/// From the first SIGINT or SIGTERM, or another rank's failure, until what still runs is killed: time to finish a step and save.
/// TANDEM_SHUTDOWN_TIMEOUT_S, 10 seconds by default; throws ValueError where that is no number of seconds.
TANDEM_API std::chrono::milliseconds shutdown_timeout();

/// Handles SIGINT and SIGTERM until destroyed.  One at a time per process.
class TANDEM_API InterruptHandlers {
 public:
  /// `enforce`: a second signal, or shutdown_timeout() after the first, end the process with 130 or 143.  Not where a launcher
  /// of ours does that.
  explicit InterruptHandlers(bool enforce);
  ~InterruptHandlers();
  InterruptHandlers(const InterruptHandlers&) = delete;
  InterruptHandlers& operator=(const InterruptHandlers&) = delete;

 private:
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

}}}  // namespace tandem::v0::distributed
