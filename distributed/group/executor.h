// Advances the operations of a group on its backend. Private to distributed/.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/group/flight_recorder.h>
#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/group/operation_watch.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Collectives run one after another, in the order of their numbers. Messages run concurrently with them. Only the
/// thread that has the role of the group's executor (see GroupQueue) calls it, except for the thread-safe functions.
class Executor {
 public:
  using Clock = Backend::Clock;

  /// `mutex` is locked by callers of FlightRecorder::record.
  Executor(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall,
           std::mutex& mutex);

  // --- thread-safe ---
  const ProcessGroupOptions& options() const { return options_; }
  int own_job_rank() const { return job_rank(options_, options_.rank); }
  const std::shared_ptr<FailureLatch>& latch() const { return latch_; }
  FlightRecorder& recorder() { return recorder_; }
  /// Null while members are joining.
  Backend* backend() const { return backend_.load(std::memory_order_acquire); }
  void set_backend(std::unique_ptr<Backend> backend);
  /// See Backend::do_cancel.
  void cancel();
  /// Runs the operation at once. For a group of one rank with a GPU.
  void run_single_rank(CollectiveOperation& operation);
  /// Fails the group, unless it has failed already. `is_of_operation`: an operation of this rank fails.
  void fail_group(Failure failure, bool is_of_operation = false);

  // --- only for the executor ---
  /// Takes queued operations.
  void add(Operations& arrived);
  /// Advances all operations once, without waiting. Returns kDone if one has ended.
  Advance step();
  /// Fails or reports operations that wait for too long at `now`. Returns whether one has failed.
  bool check_times(Clock::time_point now);
  /// When check_times() or step() must be called although nothing has moved.
  Clock::time_point wake_at() const;
  /// Finishes the operations that have ended, and removes them. The result is valid until the next call.
  Operations& take_ended();

 private:
  Advance advance_collective();
  bool prefetch_signatures();
  Advance advance_messages();
  Advance start_messages(Backend* backend);
  void begin(Operation& operation, FailureLatch::Known& known);
  void finish(Operation& operation);
  Advance advance_or_fail(const Waiting& operation, FunctionRef<Advance()> advance);
  void fail(Operation& operation, const GroupError& error, int culprit);
  void fail(Operation& operation, const std::exception_ptr& error);
  void fail_messages(const GroupError& error);

  const ProcessGroupOptions options_;
  const std::shared_ptr<FailureLatch> latch_;
  FlightRecorder recorder_;
  OperationWatch watch_;
  std::unique_ptr<Backend> owned_;
  std::atomic<Backend*> backend_;
  std::deque<std::shared_ptr<CollectiveOperation>> collectives_;  // the first one runs
  size_t num_prefetched_ = 0;                                     // signatures sent of the collectives behind it
  std::vector<std::shared_ptr<Message>> messages_;
  size_t num_started_ = 0;               // of messages_: [0, num_started_) were passed to the backend
  GpuMessages* gpu_messages_ = nullptr;  // after the first message with a GPU tensor
  Operations ended_;
  std::atomic<int64_t> completed_{0};  // number of the last collective that is complete
  FailureLatch::Known known_;
  Clock::time_point again_ = Clock::time_point::max();  // when advance_or_fail() may have another result
};

}}}  // namespace tandem::v0::distributed
