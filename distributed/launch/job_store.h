// Joining the store of a job.  Private to distributed/.
#pragma once

#include <chrono>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct JobStore {
  std::unique_ptr<StoreServer> server;  ///< where this rank hosts the store
  std::shared_ptr<TcpStore> store;
};

/// Hosts the store where the rank is to, and joins it.  Throws IoError where it cannot listen, with what to do about it,
/// and CommError where the store was not reached within `timeout` (0: none) or is none of this job.
TANDEM_API JobStore join_job_store(const RankEnvironment& env, std::chrono::milliseconds timeout);

}}}  // namespace tandem::v0::distributed
