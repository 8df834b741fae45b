// NCCL's communicator, and the calls on it. Private to distributed/backends/nccl.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include <nccl.h>

#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/backends/nccl/gpu_lane.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Not blocking: a call that has to make links first returns at once, and is waited for here, so that abort() always
/// gets through. All of NCCL's calls are made under one mutex: not even those that only look are safe beside another.
class Communicator {
 public:
  Communicator(Device device, int rank, int world_size) : device_(device), rank_(rank), world_size_(world_size) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Blocks until all ranks have come. False where `gives_up` says so, which is asked now and then. Throws
  /// BackendError.
  bool join(const NcclId& id, const std::function<bool()>& gives_up);
  /// Queues the collective; by one thread at a time. Throws BackendError, also where it was aborted meanwhile.
  void run(const Collective& collective, const cuda::Stream& stream);
  /// Throws BackendError where NCCL has found something to be wrong.
  void look();
  /// What is under way ends at once. Waits for the host's other ranks as NCCL may, but only for a moment.
  void abort();
  /// After the last call, when nothing is under way: waits for the host's other ranks to end theirs, but not for long.
  void end();

 private:
  ncclComm_t handle() const;
  bool finish(ncclComm_t comm, ncclResult_t (*call)(ncclComm_t), std::chrono::milliseconds limit) const;
  void settle(std::unique_lock<std::mutex>& lock, ncclResult_t result, const char* call);
  void run_parts(const Collective& c, ncclRedOp_t op, cudaStream_t stream);
  void exchange_parts(const Collective& c, cudaStream_t stream);

  const Device device_;
  const int rank_;
  const int world_size_;

  std::mutex mutex_;             // guards what follows, and is held through every call of NCCL
  ncclComm_t handle_ = nullptr;  // null once it was aborted or has ended
  bool makes_links_ = false;     // a call is on its way: none may be made but to look and to abort
};

}}}  // namespace tandem::v0::distributed
