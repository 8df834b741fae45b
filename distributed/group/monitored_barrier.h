// A barrier that reports which ranks are missing. Private to distributed/.
#pragma once

#include <chrono>
#include <cstdint>

#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Runs the `number`-th monitored barrier (from 1) of the group. A timeout of 0 means no timeout.
void monitored_barrier(const ProcessGroupOptions& options, int64_t number, std::chrono::milliseconds timeout);

}}}  // namespace tandem::v0::distributed
