// Runs buckets through a chain of communication hooks, with the same order of collectives on all ranks. Private to
// distributed/.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Averages buckets with communication hooks.
///
/// Collectives must start in the same order on all ranks, but a hook starts its second all-reduce when the first one
/// completes, at a different time on each rank. Therefore only one bucket at a time, the *open* bucket, may start
/// all-reduces. The next bucket opens when the open one has started its last all-reduce. Hooks with one all-reduce
/// thus keep all buckets in flight. The thread that completes an all-reduce (the worker of the group, or a waiting
/// thread) continues its bucket and opens the next.
///
/// With hooks of several all-reduces no other collectives may be started on a CPU group while buckets are in flight.
/// launch() and end_step() must not be called concurrently. Pending all-reduces own this object; callbacks stored in
/// it do not.
///
/// On GPUs launch() enqueues all all-reduces and callbacks of a bucket immediately, on streams separate from the
/// compute stream, so that the order of collectives is program order. The callbacks after the k-th all-reduce of each
/// bucket use stream k, so that they do not delay the next bucket. Waiting for a bucket makes the compute stream wait
/// for its last callback.
class CommHookPipeline : public std::enable_shared_from_this<CommHookPipeline> {
 public:
  /// Throws ValueError for an invalid chain.
  CommHookPipeline(std::shared_ptr<ProcessGroup> group, CommHooks hooks, std::vector<GradBucket> buckets);
  /// Waits for work of a failed step on the GPU, which writes to memory of this object.
  ~CommHookPipeline();

  /// Averages buckets[bucket] after the buckets launched before it, with the first `num_hooks` hooks. Call in index
  /// order.
  Work launch(size_t bucket, size_t num_hooks);
  /// Call when all buckets of a step are complete.
  void end_step();

 private:
  struct InFlightBucket {
    Promise<void> promise;
    Work current;                                       ///< the pending all-reduce; guarded by mutex_
    size_t num_hooks = 0;                               ///< fewer than all: a replay
    int num_started = 0;                                ///< all-reduces started
    std::optional<cuda::Event> ready = {};              ///< CUDA: the gradients are computed
    std::optional<cuda::Event> closed = {};             ///< CUDA: the last callback is complete
    std::vector<std::function<void()>> callbacks = {};  ///< CUDA: keep their tensors alive until the end of the step
  };

  using Clock = std::chrono::steady_clock;

  /// Waits for the pending all-reduce of the bucket. Returns false if there is none.
  bool progress(size_t bucket, Clock::time_point deadline);
  /// Opens waiting buckets, unless another thread does. Releases `lock` meanwhile.
  void open_next(std::unique_lock<std::mutex>& lock);
  void open(size_t bucket);
  void average(size_t bucket, size_t level, const std::shared_ptr<const GradBucket>& values, bool is_last,
               std::function<void()> done);
  void all_reduce(size_t bucket, const Tensor& values, bool is_last, std::function<void()> done);
  void continue_on_comm_stream(size_t bucket, const Work& work, std::function<void()> done);
  void close(size_t bucket);
  bool is_on_gpu(size_t bucket) const { return gpu_ && buckets_[bucket].values.device() == *gpu_; }
  /// Stream of the callbacks after the given number of all-reduces of a bucket.
  const cuda::Stream& comm_stream(int num_all_reduces);
  void fail(size_t bucket, std::exception_ptr error);
  void fail_by_hook(size_t bucket);

  const std::shared_ptr<ProcessGroup> group_;
  const CommHooks hooks_;
  const std::vector<GradBucket> buckets_;
  std::optional<Device> gpu_;               ///< the GPU of the buckets, in a group of several ranks
  std::vector<cuda::Stream> comm_streams_;  ///< see comm_stream(); used by the thread that calls launch()

  std::mutex mutex_;
  std::vector<InFlightBucket> in_flight_;  ///< by bucket
  std::deque<size_t> waiting_;             ///< launched, not opened yet
  bool is_open_ = false;                   ///< the open bucket still has all-reduces to start
  bool opening_ = false;                   ///< a thread is in open_next
  std::exception_ptr failure_;
};

/// "power_sgd(rank 2) > bf16".
std::string describe(const CommHooks& hooks);

}}}  // namespace tandem::v0::distributed
