// The NCCL communicator of one rank and the calls on it. Private to distributed/backends/nccl.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include <nccl.h>

#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/backends/nccl/nccl_backend.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Uses NCCL's nonblocking mode. A call that must open connections first returns ncclInProgress immediately, and this
/// class polls it. So abort() never waits for such a call. After join(), one mutex serializes all NCCL calls on the
/// communicator, because not even NCCL's query functions are thread-safe. abort() and end() remove the handle under the
/// mutex and then destroy it without the mutex.
class Communicator {
 public:
  /// `max_blocks`: as in NcclBackend::Options.
  Communicator(Device device, int rank, int world_size, int max_blocks)
      : device_(device), rank_(rank), world_size_(world_size), max_blocks_(max_blocks) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Blocks until all ranks have joined. Polls `is_aborted` and returns false if it returns true. Throws BackendError.
  bool join(const NcclId& id, const std::function<bool()>& is_aborted);
  /// Enqueues the collective. One thread at a time. Throws BackendError, also if abort() is called concurrently.
  void run(const Collective& collective, const cuda::Stream& stream);
  /// Enqueues the messages to and from the other of two ranks, as one NCCL call. Otherwise as above.
  void run(const MessageBatch& batch, const cuda::Stream& stream);
  /// Throws BackendError if NCCL has detected an asynchronous error.
  void look();
  /// Aborts all collectives in progress immediately. NCCL may wait for the other ranks of this host; this call waits at
  /// most 1 s.
  void abort();
  /// Destroys the communicator. Call it when all collectives are complete. Waits at most 5 s for the other ranks of
  /// this host to destroy theirs, then continues in the background.
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
  const int max_blocks_;

  std::mutex mutex_;             // guards the members below; held during NCCL calls on handle_
  ncclComm_t handle_ = nullptr;  // null after abort() or end()
};

}}}  // namespace tandem::v0::distributed
