// Runs buckets through a chain of hooks, with the same order of collectives on all ranks.  Private to distributed/.
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

#include <tandem/distributed/gradient_hooks.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A hook may start its second exchange only when the first is done, which happens at another moment on each rank.
/// What is the same on all ranks is the order of buckets: so the bucket whose exchanges are being started is *open*,
/// and the next one is opened when the last exchange of this one was started (not when it is done: hooks of one
/// exchange keep as many buckets in flight as there are, and start them in launch()).  Who completes an exchange, the
/// group's worker or a waiting thread, goes on with its bucket and opens the next.
///
/// So with hooks of several exchanges nobody else may start collectives on a CPU group while buckets travel.  launch()
/// and end_step() are called by one thread at a time.  An exchange under way holds this object; callbacks that
/// are kept do not.
///
/// On GPUs nothing waits for that: a bucket's exchanges and callbacks are all given to the GPU by launch(), beside the stream that
/// computes, so their order among the rank's collectives is the program's.  What follows the k-th exchange of a bucket has a stream
/// of its own, or it would keep the next bucket waiting; whoever waits for a bucket puts the computing stream behind the last.
///
/// The end of a shadow step runs it again, from what this rank gave and the hooks remembered, with none of the hooks,
/// with the first, the first two ..., and then puts back what the step itself has left.
class HookedExchange : public std::enable_shared_from_this<HookedExchange> {
 public:
  /// Throws ValueError where the chain makes no sense.  `shadow_every` = k > 0: each k-th step is a shadow step.
  HookedExchange(std::shared_ptr<ProcessGroup> group, GradientHooks hooks, std::vector<GradientBucket> buckets,
                 int64_t shadow_every);
  /// Waits for what a failed step has left on the GPU: it writes memory that goes with this object.
  ~HookedExchange();

  /// Averages buckets[bucket] after those that were launched before; in index order.
  Work launch(size_t bucket);
  /// After all buckets of a step are done.  Collective in a shadow step.
  void end_step();
  const HookReport& report() const { return report_; }
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  /// A bucket on its way.
  struct Flight {
    Promise<void> promise;
    Work leaf;                                          ///< the group's operation that is under way; guarded by mutex_
    int exchanges = 0;                                  ///< operations started
    std::optional<cuda::Event> ready = {};              ///< on a GPU: when the gradients are there
    std::optional<cuda::Event> closed = {};             ///< ... and when the bucket's last callback is done
    std::vector<std::function<void()>> callbacks = {};  ///< that ran, with the tensors that the GPU may still read
  };

  using Clock = std::chrono::steady_clock;

  /// Moves the bucket's operation that is under way, and with it what comes after; false where there is none.
  bool help(size_t bucket, Clock::time_point deadline);
  /// Opens what can be opened, on this thread unless another one is at it; gives `lock` back meanwhile.
  void open_next(std::unique_lock<std::mutex>& lock);
  void open(size_t bucket);
  void average(size_t bucket, size_t level, const std::shared_ptr<const GradientBucket>& values, bool is_last,
               std::function<void()> done);
  void exchange(size_t bucket, const Tensor& values, bool is_last, std::function<void()> done);
  void go_on_beside(size_t bucket, const Work& work, std::function<void()> done);
  void close(size_t bucket);
  bool is_beside(size_t bucket) const { return gpu_ && buckets_[bucket].values.device() == *gpu_; }
  /// The stream of what follows that many of a bucket's exchanges.
  const cuda::Stream& beside(int num_exchanges);
  void fail(size_t bucket, std::exception_ptr error);
  void fail_by_hook(size_t bucket);
  bool is_shadow_step() const { return shadow_every_ > 0 && (step_ + 1) % shadow_every_ == 0; }
  bool runs_again() const { return num_hooks_ < hooks_.size(); }
  /// For run_again: what bucket `bucket` holds, and before the first one what the hooks remember.
  void keep(size_t bucket);
  /// The means that the first `num_hooks` hooks make of what was kept.
  std::vector<Tensor> run_again(size_t num_hooks);
  HookReport compare();
  std::vector<Tensor> copy_values() const;

  const std::shared_ptr<ProcessGroup> group_;
  const GradientHooks hooks_;
  const std::vector<GradientBucket> buckets_;
  const int64_t shadow_every_;
  std::optional<Device> gpu_;         ///< that has buckets, in a group of several ranks
  std::vector<cuda::Stream> beside_;  ///< see beside(); of who calls launch()
  int64_t step_ = 0;                  ///< steps that have ended; changes while nothing is in flight
  HookReport report_;
  size_t num_hooks_;           ///< of the chain, that average; fewer than all while a shadow step is run again
  std::vector<Tensor> given_;  ///< of a shadow step, by bucket: this rank's values
  State remembered_;           ///< ... and state_dict() before it

  std::mutex mutex_;
  std::vector<Flight> flights_;  ///< by bucket
  std::deque<size_t> waiting_;   ///< launched, not opened
  bool is_open_ = false;         ///< an opened bucket has exchanges to start
  bool opening_ = false;         ///< a thread is in open_next
  std::exception_ptr failure_;
};

/// "power_sgd(rank 2) > bf16".
std::string describe(const GradientHooks& hooks);

}}}  // namespace tandem::v0::distributed
