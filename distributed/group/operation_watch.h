// Deadlines and stall reports of a group's operations. Private to distributed/.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/group/flight_recorder.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The ranks of the members in the job.
std::vector<int> job_ranks(const ProcessGroupOptions& options);

/// "[rank 2 of 4]"; in a subgroup "[rank 2, group 'evaluation']".
std::string rank_label(const ProcessGroupOptions& options);

/// Headline for an operation whose deadline has passed, without the lists of ranks.
MissingRanks missing_ranks(const ProcessGroupOptions& options, std::string operation,
                           std::chrono::milliseconds timeout);

/// "rank 3 (last: all_gather #1860 'control record', 31.2 s ago), rank 5 (has started nothing yet)".
std::string describe_ranks(const ProcessGroupOptions& options, std::span<const int> ranks, const Backend& backend,
                           const char* last_word);

/// Starts a thread that works for the calling thread's rank, but in none of its modes, which may end before the thread.
std::thread start_rank_thread(std::function<void()> f);

/// Checks the deadlines of operations, and reports operations that wait for long. Used by the executor. `backend` is
/// null while members are joining.
class OperationWatch {
 public:
  using Clock = Backend::Clock;

  /// `stall`: time after which the group reports a waiting operation.
  OperationWatch(const ProcessGroupOptions& options, std::chrono::milliseconds stall, FlightRecorder& recorder)
      : options_(options), stall_(stall), recorder_(recorder) {}

  /// Sets the times of an operation that begins now.
  void begin(Operation& operation) const;
  /// The error of an operation whose deadline had passed `now`. May extend the deadline instead. `failure`: of the
  /// group.
  std::optional<GroupError> find_late(Operation& operation, Clock::time_point now, Backend* backend,
                                      const std::optional<Failure>& failure) const;
  /// Reports an operation that waits for long. The group logs one line, from the lowest rank that waits and is alive:
  /// the first rank that claims the k-th report of a wait in the store makes it. Before that, each rank waits briefly
  /// for the lower ranks that have started the operation.
  void report_stall(Operation& operation, Clock::time_point now, Backend* backend);

 private:
  /// Ranks of the group that have started an operation, and ranks that it waits for.
  struct Ranks {
    std::vector<int> started, missing;
    bool have_started = false;  ///< the missing ranks: the operation waits for their data
  };

  Ranks ranks_of(const Operation& operation, Backend& backend) const;
  GroupError timed_out(const Operation& operation, const char* where, const std::string& progress, int culprit,
                       const std::string& headline) const;

  const ProcessGroupOptions options_;
  const std::chrono::milliseconds stall_;
  FlightRecorder& recorder_;
  const std::shared_ptr<std::atomic<bool>> logging_ = std::make_shared<std::atomic<bool>>(false);
};

}}}  // namespace tandem::v0::distributed
