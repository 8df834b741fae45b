// The barrier that knows who is missing.  Private to distributed/.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <tandem/distributed/process_group.h>

namespace tandem::inline v0::distributed {

/// The `number`-th (from 1) of the group, whose `options.ranks` are filled in.  `who` begins errors: "[rank 2 of 4]".
/// A timeout of 0 is none.
void monitored_barrier(const ProcessGroupOptions& options, const std::string& who, int64_t number,
                       std::chrono::milliseconds timeout);

}  // namespace tandem::inline v0::distributed
