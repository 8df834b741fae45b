// Collectives of a group of one rank on its GPU: results are copies of what they are made of.  Private to distributed/.
#pragma once

#include <tandem/base/future.h>
#include <tandem/distributed/operation.h>

namespace tandem::inline v0::distributed {

/// Whether the operation is one that run_alone makes; operands.h lets no other be on a GPU.
inline bool is_for_one_rank(const CollectiveOperation& operation) { return !operation.collective.device.is_cpu(); }

/// Makes the operation on the caller's thread, in the order of its current stream.
void run_alone(const CollectiveOperation& operation);
/// The same, and its handle.
Work start_alone(const CollectiveOperation& operation);

}  // namespace tandem::inline v0::distributed
