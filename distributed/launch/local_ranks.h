// The ranks that one launcher has started on its host.  Private to distributed/.
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

/// The end of a rank's process.
struct RankExit {
  int rank = 0;  ///< in the job
  int wait_status = 0;
  std::string log_path;  ///< where the rank failed and has a log
  std::string log_tail;
};

/// Starts ranks, shows what they print, asks them to stop and kills them.  Used by one thread.
class LocalRanks {
 public:
  using Clock = std::chrono::steady_clock;

  LocalRanks(const JobOptions& options, const LauncherSignals& signals);
  /// Kills what still runs.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  /// Starts all ranks of this host; `first` is where its first one is to be.  None may be running.
  /// Throws IoError or ResourceError where one cannot be started.
  void start(const RankPlace& first, bool no_deadlines);
  bool running() const;

  /// After a failure somewhere: `ask_now` (ranks of the job) are asked to end at once, because they hear of failures by
  /// signals alone; those that have not ended after half of shutdown_timeout() are asked, after all of it
  /// killed.
  void stop(const std::vector<int>& ask_now);
  /// The same where nobody says which ranks hear of the failure.
  void stop_all();
  /// The first SIGINT or SIGTERM: passes it on, and kills after shutdown_timeout().
  void interrupt(int signal);
  void kill_now();

  void add_polled(std::vector<pollfd>* polled) const;
  /// Moves on output and returns the ranks that have ended since.  Call it after poll, and when next_deadline has come.
  std::vector<RankExit> step();
  /// When step has something to do whatever poll says.
  Clock::time_point next_deadline() const;
  /// Shows the rest of what the ranks printed, waiting `timeout_ms` each time nobody reads it; whether that was all.
  bool flush(int timeout_ms) { return output_.flush(timeout_ms); }

 private:
  struct LocalRank {
    Child child;
    bool running = false;
  };

  void start_rank(int local_rank);
  std::vector<std::string> environment(const RankPlace& place) const;
  std::optional<cpu_set_t> choose_cores(int local_rank) const;
  std::optional<RankExit> reap(int local_rank);
  void signal_all(int signal);
  void kill_not_later_than(Clock::time_point when);

  const JobOptions& options_;
  const LauncherSignals& signals_;
  const std::chrono::milliseconds shutdown_timeout_ = shutdown_timeout();
  std::optional<GroupGuard> guard_;  // once ranks were started
  RankOutput output_;
  RankPlace first_;
  bool no_deadlines_ = false;
  std::vector<LocalRank> ranks_;
  bool stopping_ = false;      // somebody failed, or a signal came
  bool told_to_stop_ = false;  // by stop()
  std::optional<Clock::time_point> ask_at_;
  std::optional<Clock::time_point> kill_at_;
};

}}}  // namespace tandem::v0::distributed
