// NCCL backend: runs a group's collectives on GPU tensors, or the messages between two ranks, on a CUDA stream of its
// own. Private to distributed/.
//
// An NcclBackend only moves data. The group's CPU backend detects failed ranks and mismatched calls: it compares the
// signature of every collective concurrently with the transfer (consistency check, gpu_group.cc), and checks deadlines
// until all ranks have started the collective. From then on the watchdog thread of the backend checks the deadline.
//
// A collective starts on the NCCL stream when the work that is already enqueued on the caller's current stream is
// complete. When a stream joins the collective, its later work starts after the collective is complete. The host thread
// blocks in two cases: NCCL opens connections, when it first uses an algorithm (selected by kind and size), or too many
// collectives are queued. abort_after() ends both waits.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The ncclUniqueId that all ranks of a communicator must share.
using NcclId = std::array<std::byte, 128>;

/// A collective or batch of messages in progress. Thread-safe.
class GpuWork {
 public:
  virtual ~GpuWork() = default;
  /// Makes the calling thread's current stream wait: work that is enqueued on it after this call starts when the
  /// collective is complete. Throws CommError if the group failed before the collective was complete. A later failure
  /// is reported by the next collective of the backend or by the next synchronization of the GPU, whichever comes
  /// first.
  virtual void join() = 0;
};

/// NCCL communicator, stream and watchdog of one rank. launch() is called by one thread at a time; the other functions
/// are thread-safe.
class NcclBackend {
 public:
  using Clock = std::chrono::steady_clock;
  /// Time at which all ranks had started a collective. Until then it is the clock's epoch.
  using AgreedTime = std::shared_ptr<std::atomic<Clock::time_point>>;
  /// Report about the ranks that do not take part in a collective for which other ranks wait (stragglers).
  struct StragglerReport {
    std::string text;
    int culprit = -1;  ///< rank in the job if there is exactly one straggler, else -1
  };
  struct Options {
    Device device;
    int rank = 0;
    int world_size = 1;
    int job_rank = 0;  ///< shown in traces
    std::string who;   ///< prefix of error messages: "[rank 2 of 4]"
    /// Whether launches run one after the other with those of other such backends on the GPU. Otherwise they run
    /// concurrently with all others, so that the caller must limit their thread blocks.
    bool is_ordered = true;
    int max_blocks = 0;  ///< upper limit of the thread blocks that NCCL uses at a time; 0: NCCL's default
    /// The failure of the group.
    std::shared_ptr<FailureLatch> latch;
    /// Finds the stragglers of collective `seq`, which is not complete at its deadline. May be empty. Called on the
    /// watchdog thread.
    std::function<StragglerReport(int64_t seq)> find_stragglers = {};
    /// Called on the watchdog thread, at most once, to set the failure. `culprit`: a rank in the job, or -1.
    std::function<void(const std::string& reason, int culprit)> on_failure;
  };

  /// Version of the NCCL library: "2.28.9".
  static std::string version();

  /// Creates a new id. One rank creates it and sends it to the other ranks. Throws BackendError.
  static NcclId make_id();
  /// Creates the communicator together with the other ranks; blocks. Throws CommError at the deadline or when the group
  /// has failed, and BackendError for errors of NCCL.
  static std::shared_ptr<NcclBackend> join(Options options, const NcclId& id, Clock::time_point deadline);
  /// Throws DTypeError for reductions that NCCL does not support: bitwise operators on integers, XOR of bool, and all
  /// reductions of int16.
  static void check(const Collective& collective);

  virtual ~NcclBackend() = default;
  virtual Device device() const = 0;
  /// Enqueues the collective and its copies. Takes the tensors from the operation and keeps them until the collective
  /// is complete. The timeout counts from the time in `agreed`; until that is set the caller checks the deadline.
  /// Collectives of several backends on one GPU run one after the other in launch order, so all ranks must launch them
  /// in the same order. Throws CommError if the group has failed, and BackendError for errors of NCCL.
  virtual std::shared_ptr<GpuWork> launch(CollectiveOperation& operation, const AgreedTime& agreed) = 0;
  /// Adds the collective and its copies to the graph that the calling thread captures, on the capture's second stream.
  /// Returns the end of the collective there. The caller keeps the tensors. Called like launch(). Throws CommError if
  /// the group has failed, and BackendError for errors of NCCL.
  virtual std::shared_ptr<const cuda::CapturePoint> capture(const CollectiveOperation& operation) = 0;
  /// Launches a graph of captured collectives: calls launch_graph(), which launches it on the current stream. The
  /// timeout of `check`, the consistency check of this launch, counts from the time in `agreed`. Called, ordered and
  /// watched like launch(); the current stream has joined the graph.
  virtual void launch_graph(CollectiveOperation& check, const AgreedTime& agreed,
                            const std::function<void()>& launch_graph) = 0;
  /// Enqueues messages between the two ranks of the backend, each after its `ready` event. Both ranks must launch the
  /// same batches in the same order. Takes the tensors and throws as the other overload; the timeout counts from this
  /// call.
  virtual std::shared_ptr<GpuWork> launch(MessageBatch& batch) = 0;
  /// Call it when the group has failed. Aborts the collectives in progress after `grace`.
  virtual void abort_after(std::chrono::milliseconds grace) = 0;
  /// Suppresses the deferred error on the GPU because the caller has already received this failure.
  virtual void suppress_deferred_error() = 0;
  /// Blocks until all launched collectives are complete or the group has failed.
  virtual void finish() = 0;
};

}}}  // namespace tandem::v0::distributed
