// Collects the traces of all ranks.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Stops tracing on all ranks of the group. Returns the events of all ranks, sorted by begin time, on rank 0, and an
/// empty vector on the others. Collective; waits for the GPU. Throws CommError.
TANDEM_API std::vector<TraceEvent> gather_trace(ProcessGroup& group);

}}}  // namespace tandem::v0::distributed
