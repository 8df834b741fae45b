// How the ranks of one host come to share memory. Private to distributed/backends/shm.
#pragma once

#include <memory>

#include <tandem/base/macros.h>
#include <tandem/distributed/backends/shm/segment.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Makes this rank's segment and maps those of all others; returns when all ranks have done so. Thread ranks get one
/// mapping, which they share. Processes pass descriptors over an abstract Unix socket of rank 0, whose name and token
/// go through the store; both ends check the peer's user. Throws CommError naming the ranks that are missing at the
/// deadline, or on other hosts.
std::shared_ptr<Mapping> join(const ProcessGroupOptions& options, const Layout& layout);

}}}  // namespace tandem::v0::distributed::shm
