// Process groups with the interface of torch.distributed: a process or a thread becomes a rank by calling
// init_process_group.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Arguments of init_process_group.
struct InitOptions {
  std::string backend = "auto";  ///< as ProcessGroupOptions::backend
  /// "env://": the variables of tandem-run, torchrun, mpirun, mpiexec or srun, or RANK, WORLD_SIZE, MASTER_ADDR and
  /// MASTER_PORT; "tcp://host:port": the address on which rank 0 listens; "file:///path": a shared file that does not
  /// exist yet. The forms tcp and file may end with "?rank=R&world_size=N".
  std::string init_method = "env://";
  /// Replaces init_method; requires rank and world_size. A store can be used for one job only. With a memory store the
  /// ranks are threads of this process.
  std::shared_ptr<Store> store = nullptr;
  int rank = -1;        ///< -1: from the environment or init_method
  int world_size = -1;  ///< -1: from the environment or init_method
  /// Timeout of the rendezvous and of collectives; 0: no timeout. The environment variable TANDEM_TIMEOUT_S takes
  /// precedence.
  std::chrono::milliseconds timeout{300000};
  std::string network_interface = {};  ///< as ProcessGroupOptions::network_interface
};

/// Makes the calling thread a rank of a job and creates the default group. Collective: returns when all ranks have
/// called it. Afterwards Context::current() and default_group() work as under launch, also on threads that this thread
/// starts through tandem, such as the workers of a DataLoader.
///
/// Throws ValueError for invalid options or variables, listing the variables found; StateError if the thread is already
/// a rank; IoError if the port of the store is in use; CommError naming the missing ranks if the rendezvous times out.
/// After an error the thread is not a rank.
TANDEM_API void init_process_group(const InitOptions& options = {});

/// Whether the calling thread is a rank of init_process_group, launch, spawn or run_threads.
TANDEM_API bool is_initialized();

/// The group of all ranks. This function and those below throw StateError if the calling thread is not a rank.
TANDEM_API const std::shared_ptr<ProcessGroup>& default_group();

/// Rank of the caller in `group`; null: the default group.
TANDEM_API int get_rank(const std::shared_ptr<ProcessGroup>& group = nullptr);
/// Number of ranks of `group`; null: the default group.
TANDEM_API int get_world_size(const std::shared_ptr<ProcessGroup>& group = nullptr);

/// Context::current().new_group(ranks, options).
TANDEM_API std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});

/// Leaves the job. Wait for asynchronous operations first. On the other ranks, later operations that need this rank
/// fail with "left the job"; operations that this rank has completed stay valid. Operations of groups that are still
/// referenced, for example by a DistributedDataParallel, fail. On the rank that hosts the store the call blocks until
/// the other ranks have left or the timeout expires. Afterwards the thread is not a rank and may call
/// init_process_group again. If a process exits without calling this function, the other ranks treat its rank as dead.
///
/// Throws StateError if the rank was not created by init_process_group; launch, spawn and run_threads end their own
/// ranks.
TANDEM_API void destroy_process_group();
/// Releases a group of new_group and sets `group` to null. For the default group: calls destroy_process_group().
TANDEM_API void destroy_process_group(std::shared_ptr<ProcessGroup>& group);

}}}  // namespace tandem::v0::distributed
