// A group's collectives on GPUs: NCCL, on a stream of its own. Private to distributed/.
//
// The lane moves data and knows nothing of ranks that are late, gone or elsewhere in their program: signatures,
// deadlines and failures are the group's CPU backend's, which compares every collective's signature concurrently with
// the transfer (consistency check, group_gpu.cc). A collective here begins on the lane's stream when what the caller's
// current stream holds is done, and later work of a stream that has joined it begins when it is done. The host waits
// where NCCL makes links, when it first takes one of its algorithms (by kind and size), and where very many are queued;
// both end when the lane is given up.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <tandem/distributed/group/operation.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// What ranks that make a communicator together must have in common.
using NcclId = std::array<std::byte, 128>;

/// One collective on its way. Safe from many threads.
class GpuWork {
 public:
  virtual ~GpuWork() = default;
  /// What the calling thread's current stream is given from now on begins when the collective is done. Throws CommError
  /// where the lane has failed before it was; what fails later is an error of the lane's next collective, or of the
  /// GPU's next synchronisation where that comes first.
  virtual void join() = 0;
};

/// One rank's part. launch() by one thread at a time; the others by any.
class GpuLane {
 public:
  using Clock = std::chrono::steady_clock;
  /// When all ranks had started a collective; not before, the epoch.
  using Agreed = std::shared_ptr<std::atomic<Clock::time_point>>;
  /// Who does not wait for a collective that others wait for.
  struct Absence {
    std::string text;
    int culprit = -1;  ///< a rank of the job, where there is one alone
  };
  struct Options {
    Device device;
    int rank = 0;
    int world_size = 1;
    int job_rank = 0;  ///< shown in traces
    std::string who;   ///< begins errors: "[rank 2 of 4]"
    /// What there is to say of the others where collective `seq` is not done in time. May be empty; called by a thread
    /// of the lane.
    std::function<Absence(int64_t seq)> find_absent = {};
    /// Called each second in which nothing ended, by a thread of the lane: returns at once, and may have the lane given
    /// up.
    std::function<void()> look_for_news = {};
    /// Called by a thread of the lane, at most once. `culprit`: a rank of the job, or -1.
    std::function<void(const std::string& reason, int culprit)> on_failure;
  };

  /// Of the library, "2.28.9".
  static std::string version();

  /// A new id; by one rank, which the others get it from. Throws BackendError.
  static NcclId make_id();
  /// Joins the others; blocks. Throws CommError at the deadline and where is_given_up() becomes true, BackendError.
  static std::shared_ptr<GpuLane> join(Options options, const NcclId& id, Clock::time_point deadline,
                                       const std::function<bool()>& is_given_up);
  /// Throws DTypeError for what NCCL does not do: bitwise operators of integers, reductions of int16.
  static void check(const Collective& collective);

  virtual ~GpuLane() = default;
  virtual Device device() const = 0;
  /// Queues the collective with its copies, and takes from the operation what it reads and writes, to keep until it is
  /// done. Its timeout counts from `agreed`: until then the caller looks at deadlines. Collectives of several lanes of
  /// a GPU run one after the other, as they were launched: so all ranks must launch them in one order. Throws CommError
  /// where the lane has failed, BackendError.
  virtual std::shared_ptr<GpuWork> launch(CollectiveOperation& operation, const Agreed& agreed) = 0;
  /// What is under way has `grace` left, then it is aborted; nothing is launched any more.
  virtual void give_up(const std::string& reason, int culprit, std::chrono::milliseconds grace) = 0;
  /// Who uses the lane has been told of its failure: the GPU's next synchronisation need not say it too.
  virtual void hush() = 0;
  /// Blocks until what was launched is done, or has failed.
  virtual void finish() = 0;
};

}}}  // namespace tandem::v0::distributed
