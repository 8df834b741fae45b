// The queue of a group, and the threads that run it. Private to distributed/.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <tandem/distributed/group/executor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// While in scope, operations that finish on this thread are completed by the worker thread, because their
/// continuations may need a lock that this thread holds (avoids deadlock).
struct DeferCompletions {
  DeferCompletions();
  ~DeferCompletions();
  DeferCompletions(const DeferCompletions&) = delete;
  DeferCompletions& operator=(const DeferCompletions&) = delete;
  const bool previous;
};

/// Numbers the operations of a group, and decides which thread advances them: a thread that waits for an operation, or
/// else the worker, which the first asynchronous call starts.
///
/// The *executor* is the thread that advances the operations; `has_executor_` is true while a thread has this role. It
/// ends when an operation has ended. A thread that waits for an operation keeps the role while it waits for peers; the
/// worker and progress() release it instead. While members are joining there is no backend: then the role is held only
/// to check deadlines.
class GroupQueue : public std::enable_shared_from_this<GroupQueue> {
 public:
  using Clock = Backend::Clock;

  /// `backend`: null while members are joining. `stall`: see OperationWatch.
  GroupQueue(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall);
  ~GroupQueue();
  GroupQueue(const GroupQueue&) = delete;
  GroupQueue& operator=(const GroupQueue&) = delete;

  /// Operations begin when all members have joined. Any thread.
  void set_backend(std::unique_ptr<Backend> backend);
  /// Only its thread-safe functions may be called.
  Executor& executor() { return executor_; }

  // An operation stands for its call: its `earlier` ones are queued before it.

  /// Runs the operation on this thread; it may be destroyed afterwards. A collective runs after all queued collectives.
  void run(Operation& operation);
  /// Runs the operations of one call immediately. For a group of one rank with a GPU, which works in the order of the
  /// calling thread's current stream.
  Work start_single_rank(std::span<CollectiveOperation* const> operations);
  /// Queues an operation and returns its handle.
  Work start(std::shared_ptr<Operation> operation);
  /// Queues all operations before any of them begins. Returns their handles.
  std::vector<Work> start(const Operations& operations);
  /// Waits for an operation that was started, but not for the completion of its handle.
  void wait(const Operation& operation, Clock::time_point until = Clock::time_point::max());

  bool progress();
  /// Wakes the executor if it waits for peers. Any thread.
  void wake();
  /// Fails all queued operations (see ~ProcessGroup).
  void end_operations();
  /// Stops the worker. No operation may be queued.
  void close();

 private:
  Work make_handle(const std::shared_ptr<Operation>& operation);

  // --- with mutex_ held ---
  void enqueue(const std::shared_ptr<Operation>& operation, bool starts_now = false);
  void notify();
  bool has_work() const { return num_operations_ > 0; }
  void run_until(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> is_over, Clock::time_point until);
  bool execute_blocking(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  std::optional<Clock::time_point> execute_nonblocking(std::unique_lock<std::mutex>& lock);
  void acquire_executor(std::unique_lock<std::mutex>& lock);
  void release_executor(std::unique_lock<std::mutex>& lock);

  void work();
  Advance step();
  bool advance_or_expire();

  std::mutex mutex_;
  Executor executor_;
  std::condition_variable for_waiters_;  // has_executor_ is false, or an operation is done
  std::condition_variable for_worker_;   // there is work for the worker, or it must stop
  Operations arrived_;                   // not yet visible to the executor
  Operations deferred_;                  // to be completed by the worker
  size_t num_operations_ = 0;            // that are not done
  int64_t last_seq_ = 0;
  int64_t last_transfer_seq_ = 0;
  bool has_executor_ = false;
  int num_waiters_ = 0;  // threads in run_until()
  bool stop_ = false;
  std::thread worker_;
  std::atomic<uint64_t> news_{0};  // counts what a thread that waits for peers or members must look at
  uint64_t taken_ = 0;             // news_ when the executor last took arrived_; used only by the executor
  std::atomic<int> sleepers_{0};   // threads that may be in Backend::do_sleep
};

}}}  // namespace tandem::v0::distributed
