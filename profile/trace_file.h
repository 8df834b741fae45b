// Trace files in Chrome's trace event format.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace profile {

/// The events as a JSON document for chrome://tracing and ui.perfetto.dev, one event per line: a process per rank, a
/// track per thread, times in microseconds since the earliest event. Bytes, floating-point operations and module are
/// arguments of an event. Invalid UTF-8 in names is replaced by U+FFFD.
TANDEM_API std::string to_chrome_json(const std::vector<TraceEvent>& events);

/// Writes to_chrome_json(events) to `path`. Throws IoError with the path and the system's reason; the file may then be
/// incomplete.
TANDEM_API void write_chrome_trace(const std::string& path, const std::vector<TraceEvent>& events);

}}}  // namespace tandem::v0::profile
