// The barrier that knows who is missing. Private to distributed/.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The `number`-th (from 1) of the group, whose `options.ranks` are filled in. `who` begins errors: "[rank 2 of 4]".
/// `shown` has no ranks; its timeout is the deadline, 0 = none.
void monitored_barrier(const ProcessGroupOptions& options, const std::string& who, int64_t number,
                       const MissingRanks& shown);

}}}  // namespace tandem::v0::distributed
