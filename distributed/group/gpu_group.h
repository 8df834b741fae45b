// Collectives, messages and graphs of a group on a GPU. Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tandem/distributed/backends/nccl/nccl_backend.h>
#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/distributed/group/group_queue.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The GPU of a rank in a group. NCCL moves the data of a collective, launched at once in the order of the calls. An
/// operation of the queue that moves no data compares the signatures concurrently (consistency check). Thread-safe.
class GpuGroup : public std::enable_shared_from_this<GpuGroup> {
 public:
  explicit GpuGroup(std::shared_ptr<GroupQueue> queue);
  /// Begins to listen to failures.
  void listen();

  /// Immediately enqueues the collectives of a call, with tensors on the rank's GPU; `last` is the last one. The handle
  /// is complete when all ranks have started the same collectives. Waiting for it makes the waiter's current stream
  /// wait for the results.
  Work start(CollectiveOperation& last);
  /// Throws DeviceError if the group uses another GPU than `device` on this rank. `op` is the prefix of the error.
  void check_device(const char* op, Device device);
  /// Completes messages that prepare_message has prepared, before they are run or started. They belong to one batch.
  void prepare(std::span<const std::shared_ptr<Message>> messages);
  /// Fails the group. The caller knows, so that no later synchronization of the GPU throws the error again.
  void abort(const std::string& reason);
  /// Blocks until all work that was launched on the GPU is complete or has failed.
  void finish();
  /// Ends communicators and threads. No operation may be queued.
  void close();

 private:
  class CapturedCollectives;  // of a cuda::Graph

  /// The consistency check of a collective: an operation with its signature that moves no data. Sets `agreed`.
  static std::shared_ptr<CollectiveOperation> make_check(Collective collective, std::chrono::milliseconds timeout,
                                                         const NcclBackend::AgreedTime& agreed);
  /// Returns a function that adds a collective to the graph that the calling thread captures.
  std::function<std::shared_ptr<GpuWork>(CollectiveOperation&)> begin_capture(const Collective& first,
                                                                              const std::shared_ptr<NcclBackend>& nccl);
  std::shared_ptr<NcclBackend> nccl_backend();
  std::vector<std::shared_ptr<NcclBackend>> nccl_backends();
  NcclBackend::Options nccl_options(Device device);
  std::shared_ptr<NcclBackend> connect(Device device, const CollectiveOperation& check,
                                       std::chrono::milliseconds timeout);
  NcclBackend::StragglerReport detect_stragglers(int64_t seq) const;

  const std::shared_ptr<GroupQueue> queue_;
  Executor& executor_;
  const ProcessGroupOptions& options_;
  std::mutex launch_mutex_;                      // checks and launches have one order; locked before mutex_
  std::weak_ptr<CapturedCollectives> captured_;  // of the last capture; guarded by launch_mutex_
  std::mutex mutex_;                             // guards the members below
  std::shared_ptr<NcclBackend> nccl_backend_;    // created by the first collective on a GPU
  std::unique_ptr<GpuMessages> gpu_messages_;    // created by the first message on a GPU
};

}}}  // namespace tandem::v0::distributed
