// Options of a process group.
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
  std::shared_ptr<Store> store;               ///< by which the ranks exchange their addresses
  int rank = 0;                               ///< of this process or thread in the group
  int world_size = 1;                         ///< number of ranks
  std::string name = "default";               ///< equal on all ranks; reserved until all members destroy the group
  std::chrono::milliseconds timeout{300000};  ///< of the rendezvous and of each operation; 0: no timeout
  bool thread_ranks = false;                  ///< the ranks are threads of this process
  /// Backend of CPU tensors: "shm" (shared memory, one host), "gloo" (TCP), "mpi" (under mpirun or srun, in programs
  /// that link it), or "auto" (shared memory on one host; between hosts mpi if all ranks can use it, else gloo).
  /// "auto" also uses NCCL for CUDA tensors; with another CPU backend select it explicitly: "cpu:gloo,cuda:nccl".
  std::string backend = "auto";
  /// Ranks of the members in the job, ascending; empty: 0 to world_size - 1. Error messages use these ranks.
  std::vector<int> ranks = {};
  std::string host_id = {};  ///< replaces TANDEM_HOST_ID: ranks with different values are treated as on different hosts
  std::string network_interface =
      {};  ///< network interface or address for gloo; empty: TANDEM_SOCKET_IFNAME, else chosen automatically
};

/// The rank in the job of group rank `rank`.
inline int job_rank(const ProcessGroupOptions& options, int rank) {
  return options.ranks.empty() ? rank : options.ranks[static_cast<size_t>(rank)];
}

}}}  // namespace tandem::v0::distributed
