// The GPU of a rank in tests.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The GPU with the rank's number. A single GPU is shared by all ranks, which NCCL permits for processes that appear
/// to be on different hosts. Call before the first collective of the process.
inline Device gpu_of_rank(int rank) {
  if (cuda::device_count() != 1) return Device::cuda(rank);
  setenv("NCCL_HOSTID", ("rank " + std::to_string(rank)).c_str(), 1);
  return Device::cuda(0);
}

inline Tensor on_gpu(ProcessGroup& group, double value, int64_t n = 4) {
  return full({n}, value, {kFloat32, Device::cuda(group.rank())});
}

/// Opens the connection for messages between the two ranks of the group. Afterwards no thread waits for a
/// GPU, so that a Stall blocks none.
inline void connect_by_message(ProcessGroup& group) {
  const Tensor x = on_gpu(group, group.rank());
  group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
  cuda::synchronize(x.device());
  group.barrier();
}

/// Runs f on thread ranks with one GPU each.
inline void run_on_gpus(int world_size, const std::function<void(ProcessGroup&)>& f) {
  ThreadRanks{.world_size = world_size, .backend = "auto"}.run(f);
}

}}}  // namespace tandem::v0::distributed
