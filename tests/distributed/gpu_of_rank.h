// The GPU of a rank in tests.
#pragma once

#include <cstdlib>
#include <string>

#include <tandem/tensor/cuda.h>

namespace tandem::inline v0::distributed {

/// That of its number; where there is one alone all ranks share it, which NCCL permits if they are processes that seem to be on
/// different hosts.  Before the process's first collective.
inline Device gpu_of_rank(int rank) {
  if (cuda::device_count() != 1) return Device::cuda(rank);
  setenv("NCCL_HOSTID", ("rank " + std::to_string(rank)).c_str(), 1);
  return Device::cuda(0);
}

}  // namespace tandem::inline v0::distributed
