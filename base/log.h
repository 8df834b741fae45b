// Log lines on stderr, with the rank. TANDEM_LOG = off | error | warning (default) | info | debug.
#pragma once

#include <string>

#include <tandem/base/error.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Levels of log lines, in ascending order; kOff writes none.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Whether a line of this level is written. Ranks other than 0 write only warnings and errors.
TANDEM_API bool log_enabled(LogLevel level);

/// Writes one line: time, level, "[rank 1/4]" if world_size > 1, text.
TANDEM_API void log_line(LogLevel level, const std::string& text);

/// Writes the concatenated arguments as one line if the level is enabled; otherwise they are not formatted.
template <class... Args>
void log(LogLevel level, const Args&... args) {
  if (log_enabled(level)) log_line(level, str(args...));
}

}}  // namespace tandem::v0
