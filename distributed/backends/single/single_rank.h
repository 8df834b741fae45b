// Collectives of a group of one rank on its GPU: results are copies of what they are made of. Private to distributed/.
#pragma once

#include <tandem/distributed/backends/collective.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Makes the copies, in the order of the calling thread's current stream.
void move_alone(const Collective& collective);

}}}  // namespace tandem::v0::distributed
