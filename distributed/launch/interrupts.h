// SIGINT and SIGTERM in a rank: the first one asks it to stop after its current step.  Private to distributed/.
#pragma once

#include <csignal>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The signal that asked this process to stop, 0 if none has.
TANDEM_API int interrupt_signal();

/// Handles SIGINT and SIGTERM until destroyed.  One at a time per process.
class TANDEM_API InterruptHandlers {
 public:
  /// `enforce`: a second signal, or ten seconds after the first, end the process with 130 or 143.  Not where a launcher
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
