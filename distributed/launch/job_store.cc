#include <tandem/distributed/launch/job_store.h>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

JobStore join_job_store(const RankEnvironment& env, std::chrono::milliseconds timeout) {
  JobStore job;
  if (env.hosts_store) {
    // The master of a PyTorchJob, a pod, may get MASTER_ADDR=localhost.
    const bool unreachable = env_string("KUBERNETES_SERVICE_HOST") && env.local_world_size < env.world_size &&
                             !loopback_hint(env.store_host).empty();
    try {
      job.server =
          std::make_unique<StoreServer>(StoreServerOptions{.host = unreachable ? "" : listening_address(env.store_host),
                                                           .port = env.store_port,
                                                           .token = env.token,
                                                           .world_size = env.world_size,
                                                           .renew = false});
    } catch (const IoError& e) {
      throw IoError(env.port_advice.empty() ? e.what() : str(e.what(), "\n  ", env.port_advice));
    }
    job.server->start();
  }
  job.store = std::make_shared<TcpStore>(TcpStoreOptions{.host = env.store_host,
                                                         .port = env.store_port,
                                                         .token = env.token,
                                                         .rank = env.rank,
                                                         .world_size = env.world_size,
                                                         .host_rank = env.launched_here ? -1 : 0,
                                                         .connect_timeout = timeout});
  return job;
}

}}}  // namespace tandem::v0::distributed
