// The queue of a group, and the threads that run it. Private to distributed/.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/nccl/nccl_backend.h>
#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/group/flight_recorder.h>
#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/group/operation_watch.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// While in scope, operations that finish on this thread are completed by the worker thread, because their
/// continuations may need a lock that this thread holds (avoids deadlock).
class DeferCompletions {
 public:
  DeferCompletions();
  ~DeferCompletions();
  DeferCompletions(const DeferCompletions&) = delete;
  DeferCompletions& operator=(const DeferCompletions&) = delete;

 private:
  const bool previous_;
};

/// The consistency check of a collective: an operation with its signature but without data.
std::shared_ptr<CollectiveOperation> consistency_check_of(const CollectiveOperation& operation);

/// A collective that failed before it was given to the GPU.
class FailedWork final : public GpuWork {
 public:
  explicit FailedWork(std::exception_ptr error) : error_(std::move(error)) {}
  void join() override { std::rethrow_exception(error_); }

 private:
  const std::exception_ptr error_;
};

/// Collectives run one after another, in the order in which they were started. Messages run concurrently with them.
///
/// The *executor* is the only thread that calls the backend, except for the functions documented as thread-safe in
/// backend.h; `has_executor_` is true while a thread has this role. The executor advances the first collective and all
/// messages until one of them has ended, then it releases the role. A thread that waits for an operation keeps the role
/// while it waits for peers; the worker and progress() release it instead.
class GroupQueue : public std::enable_shared_from_this<GroupQueue> {
 public:
  using Clock = Backend::Clock;

  /// `stall`: time after which the group reports a waiting operation.
  GroupQueue(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall);

  const ProcessGroupOptions& options() const { return options_; }
  Backend& backend() { return *backend_; }
  int own_job_rank() const { return job_rank(options_, options_.rank); }
  /// Begins to listen to the store's reports of failures.
  void watch_failures();

  /// Runs the operation on this thread. A collective runs after all queued collectives.
  void run(CollectiveOperation& operation);
  /// For a group of one rank with a GPU: runs the operation immediately, on the calling thread.
  void run_single_rank(CollectiveOperation& operation);
  /// Like run_single_rank(), but returns a completed handle: the GPU works in the order of the calling thread's current
  /// stream.
  Work start_single_rank(CollectiveOperation& operation);
  /// Immediately enqueues collectives of tensors on the rank's GPU. All tensors must be on one device. The handle is
  /// complete when all ranks have started the same collectives. Waiting for it makes the waiter's current stream wait
  /// for the results.
  Work start_on_gpu(std::span<CollectiveOperation* const> operations);
  /// Throws DeviceError if the group uses another GPU than `device` on this rank. `op` is the prefix of the error.
  void check_gpu(const char* op, Device device);
  /// Completes messages that prepare_message has prepared, before they are run or started. They belong to one batch.
  void prepare_gpu_messages(std::span<const std::shared_ptr<Message>> messages);
  void run(const std::shared_ptr<Message>& message);
  /// Runs several collectives directly one after another. Throws the first error.
  void run(std::span<const std::shared_ptr<CollectiveOperation>> operations);
  /// Queues the operation and returns its handle.
  Work start(const std::shared_ptr<CollectiveOperation>& operation);
  std::vector<Work> start(std::span<const std::shared_ptr<Message>> messages);
  /// Queues all operations and returns one handle for them.
  Work start(std::span<const std::shared_ptr<CollectiveOperation>> operations);

  /// Blocks until all work that was launched on the GPU is complete or has failed.
  void finish_gpu();

  bool progress();
  void abort(const std::string& reason);
  /// Fails all queued operations (see ~ProcessGroup), and stops the worker.
  void close();

 private:
  // --- with mutex_ held ---
  void enqueue(std::shared_ptr<CollectiveOperation> operation);
  void enqueue(std::shared_ptr<Message> message);
  void notify_executor();
  bool has_work() const { return !queue_.empty() || num_messages_ > 0; }
  void collect();
  void run_until(std::unique_lock<std::mutex>& lock, const Operation& operation, Clock::time_point until);
  bool execute_blocking(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  bool execute_nonblocking(std::unique_lock<std::mutex>& lock);
  void acquire_executor(std::unique_lock<std::mutex>& lock);
  void release_executor(std::unique_lock<std::mutex>& lock);
  void start_worker();

  class CapturedCollectives;  // of a cuda::Graph

  std::shared_ptr<NcclBackend> nccl_backend();
  Work capture_on_gpu(std::span<CollectiveOperation* const> operations, const std::shared_ptr<NcclBackend>& nccl);
  std::shared_ptr<GpuMessages> gpu_messages();
  NcclBackend::Options nccl_options(Device device);
  GpuMessages::Hooks message_hooks();
  std::shared_ptr<NcclBackend> connect_gpu(Device device, const CollectiveOperation& check,
                                           std::chrono::milliseconds timeout);
  void abort_gpu(const std::string& reason, int culprit);
  void suppress_deferred_errors();
  NcclBackend::StragglerReport detect_stragglers(int64_t seq) const;
  void on_failure_change(const FailureLatch::Known& known);
  /// Fails the group, unless it has failed already.
  void fail_group(int culprit, const std::string& reason, bool is_mismatch = false);
  Work make_work(const std::shared_ptr<Operation>& operation);
  template <class Pending>
  void queue_all(std::span<const std::shared_ptr<Pending>> operations);
  std::function<bool(Clock::time_point)> make_help(const std::shared_ptr<Operation>& operation);
  void work();
  void wake_executor();

  // --- only for the executor ---
  Advance step();
  bool advance_or_expire();
  Advance advance_head();
  bool prefetch_signatures();
  Advance advance_messages();
  void begin(Operation& operation);
  void finish(Operation& operation);
  bool check_times(Clock::time_point now);
  Clock::time_point wake_at() const;
  void fail(Operation& operation, const GroupError& error) { fail(operation, error, error.culprit()); }
  void fail(Operation& operation, const GroupError& error, int culprit);
  void fail_with_current_exception(Operation& operation);
  void fail_messages(const GroupError& error);
  void fail_on_gpu(Message& message);
  void fail_if_needed(int64_t number, FunctionRef<bool(int rank)> needs);
  bool knows_ends();

  const ProcessGroupOptions options_;
  const std::unique_ptr<Backend> backend_;
  FailureLatch latch_;

  std::mutex mutex_;
  FlightRecorder recorder_{options_, mutex_};
  OperationWatch watch_;
  bool has_written_failure_ = false;     // of another rank; guarded by the latch's listener
  std::condition_variable for_waiters_;  // has_executor_ is false, or an operation is done
  std::condition_variable for_worker_;   // there is work for the worker, or it must stop
  std::deque<std::shared_ptr<CollectiveOperation>> queue_;
  std::vector<std::shared_ptr<Message>> arrived_;     // not yet visible to the executor
  std::vector<std::shared_ptr<Operation>> deferred_;  // to be completed by the worker
  size_t num_messages_ = 0;                           // messages that are not done
  int64_t last_seq_ = 0;
  int64_t last_transfer_seq_ = 0;
  bool has_executor_ = false;
  int num_waiters_ = 0;  // threads in run_until()
  bool stop_ = false;
  std::thread worker_;
  std::shared_ptr<NcclBackend> nccl_backend_;    // created by the first collective on a GPU
  std::shared_ptr<GpuMessages> gpu_messages_;    // created by the first message on a GPU
  std::mutex gpu_mutex_;                         // serializes launches on the GPU; locked before mutex_
  std::weak_ptr<CapturedCollectives> captured_;  // of the last capture; guarded by gpu_mutex_
  std::atomic<bool> has_arrivals_{false};        // operations were queued while a thread was the executor
  std::atomic<int> sleepers_{0};                 // threads that may be in do_sleep

  // Used only by the executor.
  std::shared_ptr<CollectiveOperation> head_;
  std::deque<std::shared_ptr<CollectiveOperation>> pending_;  // behind the head; the first num_prefetched_ were sent
  size_t num_prefetched_ = 0;
  std::vector<std::shared_ptr<Message>> active_;
  size_t num_begun_ = 0;                                       // of active_: [0, num_begun_) have begun
  GpuMessages* running_messages_ = nullptr;                    // gpu_messages_.get()
  Clock::time_point worker_until_ = Clock::time_point::max();  // next time to check the deadlines
  std::atomic<int64_t> completed_{0};  // number of the last collective that is complete; read by any thread
  FailureLatch::Known known_;
  Clock::time_point again_ = Clock::time_point::max();  // when fail_if_needed() may have another result
  bool has_failed_ = false;                             // an operation of this rank
};

}}}  // namespace tandem::v0::distributed
