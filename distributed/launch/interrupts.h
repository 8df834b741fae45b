// SIGINT and SIGTERM in a rank: the first signal requests a stop after the current step. Private to distributed/.
#pragma once

#include <chrono>
#include <csignal>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Stands for a timeout of 0, which means no limit.
inline constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 3650);

/// The signal that requested this process to stop, or 0.
TANDEM_API int interrupt_signal();

/// Time from the first SIGINT or SIGTERM, or from another rank's failure, to SIGKILL: for finishing a step and saving a
/// checkpoint. TANDEM_SHUTDOWN_TIMEOUT_S in seconds, default 10; 0: no limit (kNoLimit). Throws ValueError if it is not
/// a number of seconds.
TANDEM_API std::chrono::milliseconds shutdown_timeout();

/// Handles SIGINT and SIGTERM until destroyed. One at a time per process.
class TANDEM_API InterruptHandlers {
 public:
  /// If `enforce` is true, the process exits with status 130 or 143 at the second signal or shutdown_timeout() after
  /// the first. Ranks of tandem's launcher pass false, because the launcher enforces this.
  explicit InterruptHandlers(bool enforce);
  ~InterruptHandlers();
  InterruptHandlers(const InterruptHandlers&) = delete;
  InterruptHandlers& operator=(const InterruptHandlers&) = delete;

 private:
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

}}}  // namespace tandem::v0::distributed
