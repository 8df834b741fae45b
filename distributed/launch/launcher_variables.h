// Ranks as launchers number them that do not set RANK: mpirun and mpiexec, srun.  Private to distributed/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Reads OpenMPI's OMPI_COMM_WORLD_*, else PMI_* of MPICH and Intel, else SLURM_* of a step that srun started; nullopt
/// where none is there.  MASTER_ADDR and MASTER_PORT go first; without them the store is on the first host, on a port that
/// follows from the job's number.  Throws ValueError, showing all that was found, where variables are missing, are no
/// numbers or contradict each other, or where the first host or the port cannot be told.
TANDEM_API std::optional<RankEnvironment> read_launcher_environment(const Lookup& lookup);

/// The first host of Slurm's list: "node[03-05,9],other" -> "node03".
TANDEM_API std::string first_slurm_host(const std::string& list);
/// Tasks by node of Slurm's list: "4(x2),3" -> 4 4 3; empty where it is no such list.
TANDEM_API std::vector<int> slurm_tasks_by_node(const std::string& list);

}}}  // namespace tandem::v0::distributed
