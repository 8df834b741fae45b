// Collectives of a group of one rank on its GPU: results are copies of what they are made of.  Private to distributed/.
#pragma once

#include <tandem/distributed/collective.h>

namespace tandem::inline v0::distributed {

/// Whether it is one of those; operands.h lets no other be on a GPU.
inline bool is_for_one_rank(const Collective& collective) { return !collective.device.is_cpu(); }

/// Makes the copies, in the order of the calling thread's current stream.
void move_alone(const Collective& collective);

}  // namespace tandem::inline v0::distributed
