// The rank processes of one launcher. Private to distributed/.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/launch/child_process.h>
#include <tandem/distributed/launch/group_guard.h>
#include <tandem/distributed/launch/interrupts.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_output.h>
#include <tandem/distributed/launch/rank_processes.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Exit of a rank's process.
struct RankExit {
  int rank = 0;  ///< global rank
  int wait_status = 0;
  std::string log_path;  ///< empty unless the rank failed and has a log
  std::string log_tail;
  std::string records;  ///< see read_flight_records
};

/// Starts ranks, forwards their output, stops and kills them. Not thread-safe.
class LocalRanks {
 public:
  using Clock = std::chrono::steady_clock;

  LocalRanks(const JobOptions& options, const LauncherSignals& signals);
  /// Kills ranks that are still running.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  /// Starts all ranks of this host; `first` is the assignment of the first one. Precondition: !running(). Throws
  /// IoError or ResourceError if a rank cannot be started.
  void start(const RankAssignment& first, bool no_deadlines);
  bool running() const;

  /// Stops the ranks after a failure. Ranks in `terminate_now` (global ranks) get SIGTERM immediately, because they
  /// are not connected to the store and would not be notified. All others get SIGTERM after half of shutdown_timeout()
  /// and SIGKILL after all of it.
  void stop(const std::vector<int>& terminate_now);
  /// stop() with all ranks of this host.
  void stop_all();
  /// Forwards the first SIGINT or SIGTERM, and kills the ranks after shutdown_timeout().
  void interrupt(int signal);
  void kill_now();

  void add_polled(std::vector<pollfd>* polled) const;
  /// Forwards output and returns the ranks that exited since the last call. Call after poll() and at next_deadline().
  std::vector<RankExit> step();
  /// Time of the next deadline that step() handles.
  Clock::time_point next_deadline() const;
  /// Writes the remaining output of the ranks, waiting up to `timeout_ms` each time the reader is not ready. Returns
  /// whether all output was written.
  bool flush(int timeout_ms) { return output_.flush(timeout_ms); }
  void print(const std::string& line) { output_.print(line); }
  RankOutput& output() { return output_; }

 private:
  struct LocalRank {
    Child child;
    bool running = false;
  };

  void start_rank(int local_rank);
  std::vector<std::string> environment(const RankAssignment& assignment) const;
  std::optional<cpu_set_t> choose_cores(int local_rank) const;
  std::optional<RankExit> reap(int local_rank);
  void signal_all(int signal);
  void kill_by(Clock::time_point when);

  const JobOptions& options_;
  const LauncherSignals& signals_;
  const std::chrono::milliseconds shutdown_timeout_ = shutdown_timeout();
  std::optional<GroupGuard> guard_;  // null until ranks are started
  RankOutput output_;
  RankAssignment first_;
  bool no_deadlines_ = false;
  std::vector<LocalRank> ranks_;
  bool stopping_ = false;  // a rank failed, or a signal arrived
  bool stop_called_ = false;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
};

}}}  // namespace tandem::v0::distributed
