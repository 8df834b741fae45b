// What node 0's launcher knows of the whole job, and decides.  Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/launch/node_messages.h>
#include <tandem/distributed/launch/rank_processes.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/store_server.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Waits for all launchers, hosts the store of their ranks, has the ranks started, finds out which one failed first, ends
/// the others, and starts all again or finishes the job.  Used by one thread.
class JobCoordinator {
 public:
  using Clock = std::chrono::steady_clock;

  struct Hooks {
    std::function<void(const NodeCommand&)> tell;  ///< every launcher; must not call the coordinator
    std::function<void(const std::string&)> say;   ///< on stderr
  };

  JobCoordinator(const JobOptions& options, Hooks hooks);

  void on_event(const NodeEvent& event);
  /// A launcher is gone, `why` as in "died (its connection closed)"; its ranks died with it.
  void on_lost(int node, const std::string& why);
  /// This node's ranks are started: answers at the ranks' store.  A thread, therefore only then.
  void serve();
  /// Looks at the ranks' store and at the clock.
  void step();
  /// Readable when a rank failed.
  int fd() const { return failure_fd_.get(); }
  /// When step has something to do whatever fd() says.
  Clock::time_point next_deadline() const;

  bool finished() const { return finished_; }
  const JobResult& result() const { return result_; }
  /// Nodes whose launchers are gone, or are given up.
  std::vector<int> lost_nodes() const;

 private:
  struct Node {
    bool joined = false;
    std::string lost;  // why; empty while it lives
    std::string host;
    int num_ranks = 0;
    int first_rank = 0;
    int gdb_rank = -1;
  };
  struct Rank {
    int node = 0;
    bool ended = false;
    int wait_status = 0;
    Clock::time_point when;
    RankExit exit;
  };

  bool is_node(int node) const { return node >= 0 && node < static_cast<int>(nodes_.size()); }
  void on_joined(const NodeEvent& event);
  void on_ended(const RankExit& exit);
  void start_attempt();
  void notice_failure();
  void give_up_silent_nodes();
  void look_whether_all_ended();
  void decide();
  JobResult verdict() const;
  int lost_node() const;  ///< -1: none
  std::string node_text(int node) const;
  void finish(int status, const std::string& message, int failed_rank = -1);

  const JobOptions& options_;
  const Hooks hooks_;
  FileDescriptor failure_fd_;
  std::vector<Node> nodes_;
  std::vector<Rank> ranks_;  // of the running attempt; empty before the first
  std::string run_id_;
  int restart_ = 0;
  int interrupt_ = 0;
  bool failed_ = false;
  bool finished_ = false;
  JobResult result_;
  Clock::time_point together_by_;
  bool no_deadlines_ = false;                                  // somebody uses gdb
  Clock::time_point all_ended_by_ = Clock::time_point::max();  // after a failure
  Clock::time_point give_up_at_ = Clock::time_point::max();
  std::unique_ptr<StoreServer> server_;
  HookHandle watch_;  // of server_'s failures: goes first
};

}}}  // namespace tandem::v0::distributed
