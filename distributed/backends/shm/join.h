// Creates the memory that the ranks of one host share. Private to distributed/backends/shm.
#pragma once

#include <memory>

#include <tandem/distributed/backends/shm/segment.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Creates this rank's segment and maps the segments of all other ranks. Returns when all ranks have done so. Thread
/// ranks share one mapping. Processes pass file descriptors over an abstract Unix socket of rank 0; its name and token
/// are exchanged through the store, and both ends check the user of the peer. Throws CommError with the ranks that are
/// missing at the deadline or run on other hosts.
std::shared_ptr<Mapping> join(const ProcessGroupOptions& options, const Layout& layout);

}}}  // namespace tandem::v0::distributed::shm
