// Rank variables of mpirun, mpiexec and srun, which do not set RANK.  Private to distributed/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_environment.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Reads OMPI_COMM_WORLD_* of OpenMPI, else PMI_* of MPICH and Intel MPI, else SLURM_* of a job step started by srun.
/// Returns nullopt if they are not set. The store's address is MASTER_ADDR and MASTER_PORT; by default the first host
/// and a port derived from the job id. Throws ValueError, listing the variables that were found, if variables are
/// missing, not numeric or contradictory, or if the first host or the port cannot be determined.
TANDEM_API std::optional<RankEnvironment> read_launcher_environment(const Lookup& lookup);

/// The first host of a Slurm node list: "node[03-05,9],other" -> "node03".
TANDEM_API std::string first_slurm_host(const std::string& list);
/// Tasks per node from a Slurm task list: "4(x2),3" -> 4 4 3; empty if `list` is malformed.
TANDEM_API std::vector<int> slurm_tasks_by_node(const std::string& list);

}}}  // namespace tandem::v0::distributed
