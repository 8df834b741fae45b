// Collectives of a group with one rank on a GPU: each result is a copy of the input. Private to distributed/.
#pragma once

#include <tandem/distributed/backends/collective.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Enqueues the copies on the calling thread's current stream.
void copy_single_rank(const Collective& collective);

}}}  // namespace tandem::v0::distributed
