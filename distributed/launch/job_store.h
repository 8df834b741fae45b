// Connects a rank to the store of its job. Private to distributed/.
#pragma once

#include <chrono>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct JobStore {
  std::unique_ptr<StoreServer> server;  ///< null unless this rank hosts the store
  std::shared_ptr<TcpStore> store;
};

/// Starts the store server if `env` says that this rank hosts it, then connects to the store. Throws IoError if the
/// server cannot listen, and CommError if the store is not reachable within `timeout` (0: no timeout) or belongs to
/// another job.
TANDEM_API JobStore join_job_store(const RankEnvironment& env, std::chrono::milliseconds timeout);

}}}  // namespace tandem::v0::distributed
