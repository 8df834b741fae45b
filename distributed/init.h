// Process groups as c10d's programs make them: a process, or a thread, becomes a rank by calling init_process_group.
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

struct InitOptions {
  std::string backend = "auto";  ///< as ProcessGroupOptions::backend
  /// "env://": what tandem-run, torchrun, mpirun or srun say, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT;
  /// "tcp://host:port": where rank 0 listens; "file:///path": a file that all share and that does not exist yet.  The
  /// last two may end in "?rank=R&world_size=N".
  std::string init_method = "env://";
  /// Instead of init_method; with rank and world_size.  Used up when the rank leaves the job: a later one needs a new
  /// one.  Where it is a memory store the ranks are threads of this process.
  std::shared_ptr<Store> store = nullptr;
  int rank = -1;        ///< -1: from the environment, or init_method
  int world_size = -1;  ///< likewise
  /// Of rendezvous and collectives; 0 = none.  TANDEM_TIMEOUT_S, where set, goes first.
  std::chrono::milliseconds timeout{300000};
  std::string interface = {};  ///< as ProcessGroupOptions::interface
};

/// Makes the calling thread a rank of a job: returns when all ranks have called it.  From then on Context::current(),
/// default_group() and all that stands on them work as in a function that launch runs; threads of the thread's own
/// (a loader's) belong to the rank as well.
///
/// Throws ValueError for wrong options or variables, showing what was found; StateError where the thread is a rank
/// already, in a function of launch, spawn and run_threads too, whose default group is there; IoError where the store's
/// port is taken; CommError naming who is missing when not all have come by the deadline.  After an error the thread is
/// no rank.
TANDEM_API void init_process_group(const InitOptions& options = {});

/// Whether the calling thread is a rank, by init_process_group, launch, spawn or run_threads.
TANDEM_API bool is_initialized();

/// The group of all ranks.  StateError where the thread is no rank; so do the functions below.
TANDEM_API const std::shared_ptr<ProcessGroup>& default_group();

/// The calling rank's number in the group, and how many there are; of the whole job without one.
TANDEM_API int get_rank(const std::shared_ptr<ProcessGroup>& group = nullptr);
TANDEM_API int get_world_size(const std::shared_ptr<ProcessGroup>& group = nullptr);

/// Context::new_group of the calling rank.
TANDEM_API std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});

/// Leaves the job: the others hear "left the job", what they have still to do with this rank fails, and what it has
/// finished is theirs.  Wait for asynchronous operations first.  Operations of groups that are still held (by a
/// DistributedDataParallel, say) fail where they would wait.  The rank that hosts the store returns when the others
/// have left too, or the timeout has passed.  The thread is then no rank, and may call init_process_group again.  A
/// rank that ends without it counts as dead.
///
/// StateError where init_process_group did not make the rank: launch, spawn and run_threads end theirs.
TANDEM_API void destroy_process_group();
/// Lets go of a group of new_group, which ends with its last holder; of the default group: the same as above.
TANDEM_API void destroy_process_group(std::shared_ptr<ProcessGroup>& group);

}}}  // namespace tandem::v0::distributed
