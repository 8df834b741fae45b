// One trace for all ranks.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Stops tracing on all ranks of the group and returns all their events on rank 0, none elsewhere.  Collective.
TANDEM_API std::vector<TraceEvent> gather_trace(ProcessGroup& group);

}}}  // namespace tandem::v0::distributed
