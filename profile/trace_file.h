// Trace files.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace profile {

/// The events as one JSON document that chrome://tracing and ui.perfetto.dev open: a process per rank, a track per thread,
/// times in microseconds from the earliest event; bytes, flops and module are the arguments.
TANDEM_API std::string to_chrome_json(const std::vector<TraceEvent>& events);
/// Writes to_chrome_json(events) to `path`.  Throws IoError with the path and the reason.
TANDEM_API void write_chrome_trace(const std::string& path, const std::vector<TraceEvent>& events);

}}}  // namespace tandem::v0::profile
