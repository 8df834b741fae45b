// What a process group is made from.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Arguments of ProcessGroup::create.
struct ProcessGroupOptions {
  std::shared_ptr<Store> store;
  int rank = 0;
  int world_size = 1;
  std::string name = "default";               ///< must be the same on all ranks and new in this job
  std::chrono::milliseconds timeout{300000};  ///< 0 = none
  bool thread_ranks = false;                  ///< ranks are threads of this process
  /// For CPU tensors "auto": shared memory where all ranks are on one host, else gloo between the hosts; "shm"; "gloo".  "auto" has
  /// NCCL for the tensors of GPUs; beside another one it is asked for by "cpu:gloo,cuda:nccl".
  std::string backend = "auto";
  /// Numbers of the members in the job, ascending; empty: 0 .. world_size - 1.  What errors show.
  std::vector<int> ranks = {};
  std::string host_id = {};    ///< stands for TANDEM_HOST_ID: ranks that differ in it count as being on different hosts
  std::string interface = {};  ///< network interface or address of gloo; empty: TANDEM_SOCKET_IFNAME, else chosen
};

/// The number in the job of `rank` of the group.
inline int job_rank(const ProcessGroupOptions& options, int rank) {
  return options.ranks.empty() ? rank : options.ranks[static_cast<size_t>(rank)];
}

}}}  // namespace tandem::v0::distributed
