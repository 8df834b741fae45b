// The queue of a group, and whoever runs its head. Private to distributed/.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/nccl/gpu_lane.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// While it lives, the worker completes what this thread's turns end: continuations may wait for a lock that this
/// thread holds.
class HandsOver {
 public:
  HandsOver();
  ~HandsOver();
  HandsOver(const HandsOver&) = delete;
  HandsOver& operator=(const HandsOver&) = delete;
};

/// Collectives run one after another, in the order of their start; messages run beside them.
///
/// `running_` guards the backend: only the thread that set it may call it, except for the functions documented as
/// thread-safe in backend.h. The thread holds it for a turn, in which it advances the head of the collectives and all
/// messages until one of them has ended. Threads that wait for an operation hold it while they wait for peers; the
/// worker and progress() give it back instead.
class GroupQueue : public std::enable_shared_from_this<GroupQueue> {
 public:
  using Clock = Backend::Clock;

  /// `stall`: how long an operation waits before the group reports it.
  GroupQueue(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall);

  /// With `ranks` filled in.
  const ProcessGroupOptions& options() const { return options_; }
  Backend& backend() { return *backend_; }
  int own_job_rank() const { return job_rank(options_, options_.rank); }
  /// "[rank 2 of 4]"; in a group of some ranks only "[rank 2, group 'evaluation']".
  std::string who() const;

  /// For the headline of an operation whose deadline has passed; without ranks.
  MissingRanks missing_ranks(std::string operation, std::chrono::milliseconds timeout) const;

  /// Passes the store's news of failed ranks on to whoever waits.
  void watch_failures();

  /// Runs the operation on this thread, a collective after those that are queued.
  void run(CollectiveOperation& operation);
  /// In a group of one rank, on its GPU: at once, on the calling thread.
  void run_alone(CollectiveOperation& operation);
  /// The same, and its handle, which is complete: the GPU does the work in the order of the stream that is current now.
  Work start_alone(CollectiveOperation& operation);
  /// Of tensors on the rank's GPU, all of one device: queued there at once. The handle is complete when all ranks have
  /// started the same; waiting for it puts the results before what the waiter's current stream is given next.
  Work start_on_gpu(std::span<CollectiveOperation* const> operations);
  void run(Message& message);
  /// The same for several that follow each other directly; throws the first's error.
  void run(std::span<const std::shared_ptr<CollectiveOperation>> operations);
  /// Queues the operation and returns its handle.
  Work start(const std::shared_ptr<CollectiveOperation>& operation);
  std::vector<Work> start(std::span<const std::shared_ptr<Message>> messages);
  /// One handle for several.
  Work start(std::span<const std::shared_ptr<CollectiveOperation>> operations);

  /// Blocks until what was launched on the GPU is done, or has failed.
  void finish_gpu() {
    if (const auto lane = gpu_lane()) lane->finish();
  }

  bool progress();
  void abort(const std::string& reason);
  /// Fails what is queued, see ~ProcessGroup, and ends the worker.
  void close();

 private:
  // --- with mutex_ held ---
  void enqueue(std::shared_ptr<CollectiveOperation> operation);
  void enqueue(std::shared_ptr<Message> message);
  void tell_runner();
  bool has_work() const { return !queue_.empty() || num_messages_ > 0; }
  void collect();
  void help(std::unique_lock<std::mutex>& lock, const Operation& operation, Clock::time_point until);
  bool wait_turn(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  bool poll_turn(std::unique_lock<std::mutex>& lock);
  void begin_turn(std::unique_lock<std::mutex>& lock);
  void end_turn(std::unique_lock<std::mutex>& lock);
  void start_worker();
  static std::thread start_rank_thread(std::function<void()> f);

  std::shared_ptr<GpuLane> gpu_lane();
  std::shared_ptr<GpuLane> connect_gpu(Device device, const CollectiveOperation& verdict,
                                       std::chrono::milliseconds timeout);
  void give_up_gpu(const std::string& reason, int culprit);
  void hush_gpu();
  GpuLane::Absence call_roll(int64_t seq) const;
  void post_failure(int culprit, const std::string& reason);
  void look_for_news();
  std::string failure_key() const;
  void abort(const std::string& reason, int culprit);
  Work make_work(const std::shared_ptr<Operation>& operation);
  template <class Pending>
  void queue_all(std::span<const std::shared_ptr<Pending>> operations);
  std::function<bool(Clock::time_point)> make_help(const std::shared_ptr<Operation>& operation);
  void work();
  void wake_runner();

  // --- by the holder of running_ ---
  Advance step();
  Advance advance_head();
  bool announce();
  Advance advance_messages();
  void begin(Operation& operation);
  void finish(Operation& operation);
  bool check_times();
  Clock::time_point wake_at() const;
  bool is_due(Operation& operation, Clock::time_point now) const;
  void expire(CollectiveOperation& operation);
  void expire(Message& message);
  void time_out(Operation& operation, const std::string& progress, int culprit, const MissingRanks& ranks);
  void report_stall(CollectiveOperation& operation, Clock::time_point now);
  void report_stall(Message& message, Clock::time_point now);
  std::string describe_stall(const Operation& operation, Clock::time_point now, const std::string& waited_for) const;
  void log_once(const CollectiveOperation& operation, const std::string& line);
  void fail(Operation& operation, const GroupError& error) { fail(operation, error, error.culprit()); }
  void fail(Operation& operation, const GroupError& error, int culprit);
  void fail_with_current_exception(Operation& operation);
  void fail_messages(const GroupError& error);
  void fail_group(int culprit, const std::string& reason);

  const ProcessGroupOptions options_;
  const bool is_whole_job_;
  const std::unique_ptr<Backend> backend_;
  const std::chrono::milliseconds stall_;
  HookHandle failures_;

  std::mutex mutex_;
  std::condition_variable for_helpers_;  // running_ is free, or an operation is done
  std::condition_variable for_worker_;   // work is left to it, or it should stop
  std::deque<std::shared_ptr<CollectiveOperation>> queue_;
  std::vector<std::shared_ptr<Message>> arrived_;        // not yet known to the holder of running_
  std::vector<std::shared_ptr<Operation>> handed_over_;  // that the worker is to complete
  size_t num_messages_ = 0;                              // that are not done
  int64_t last_seq_ = 0;
  int64_t last_transfer_seq_ = 0;
  bool running_ = false;
  int helpers_ = 0;  // threads in help()
  bool stop_ = false;
  std::thread worker_;
  std::string abort_reason_;
  int abort_culprit_ = -1;
  std::atomic<bool> is_aborted_{false};  // abort_reason_ is there
  std::shared_ptr<GpuLane> gpu_lane_;    // made by the first collective on a GPU
  std::mutex gpu_mutex_;                 // who starts collectives on the GPU; before mutex_
  std::atomic<bool> is_on_gpu_{false};   // collectives are, or ranks are about to join
  const std::shared_ptr<std::atomic<bool>> asks_ =
      std::make_shared<std::atomic<bool>>(false);  // a thread looks for news
  std::atomic<bool> is_failing_{
      false};  // a rank was lost, or an operation failed: nobody is to be waited for on the GPU

  std::atomic<bool> has_arrivals_{false};  // something came in during a turn
  std::atomic<int> sleepers_{0};           // threads that may be in do_sleep

  // Of the holder of running_.
  std::shared_ptr<CollectiveOperation> head_;
  std::deque<std::shared_ptr<CollectiveOperation>> behind_;  // the head, those that were announced first
  size_t num_announced_ = 0;
  std::vector<std::shared_ptr<Message>> active_;
  size_t num_begun_ = 0;                                       // of active_: [0, num_begun_) have begun
  Clock::time_point worker_until_ = Clock::time_point::max();  // when the times of what waits are to be looked at again
  const std::shared_ptr<std::atomic<bool>> reporting_ = std::make_shared<std::atomic<bool>>(false);  // a thread asks
  bool failed_ = false;
  int culprit_ = -1;
  std::string reason_;
};

}}}  // namespace tandem::v0::distributed
