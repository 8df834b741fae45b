// A barrier that reports which ranks are missing. Private to distributed/.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Runs the `number`-th monitored barrier (from 1) of the group; `options.ranks` must be filled in. `who` is the prefix
/// of errors: "[rank 2 of 4]". `shown` has no lists of ranks; its timeout is the deadline, 0 means no timeout.
void monitored_barrier(const ProcessGroupOptions& options, const std::string& who, int64_t number,
                       const MissingRanks& shown);

}}}  // namespace tandem::v0::distributed
