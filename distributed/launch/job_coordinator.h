// Coordinates all launchers of a job; runs in the launcher of node 0. Private to distributed/.
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

/// Waits for all launchers, hosts the store of the ranks, starts the ranks, determines the first failed rank, stops the
/// other ranks, and then restarts or finishes the job. Not thread-safe.
class JobCoordinator {
 public:
  using Clock = std::chrono::steady_clock;

  struct Hooks {
    std::function<void(const NodeCommand&)> broadcast;  ///< sends to every launcher; must not call the coordinator
    std::function<void(const std::string&)> print;      ///< writes a line to stderr, without blocking
  };

  JobCoordinator(const JobOptions& options, Hooks hooks);

  void on_event(const NodeEvent& event);
  /// The launcher of `node` and its ranks were lost; `why` as in "died (its connection closed)".
  void on_lost(int node, const std::string& why);
  /// Starts serving the ranks' store. Call after the ranks of this node were forked, because it starts a thread.
  void serve();
  /// Handles failures reported by the store and expired deadlines.
  void step();
  /// Readable when the store has reported a failure.
  int fd() const { return failure_fd_.get(); }
  /// Time of the next deadline that step() handles.
  Clock::time_point next_deadline() const;

  bool finished() const { return finished_; }
  const JobResult& result() const { return result_; }
  /// Nodes whose launchers were lost or did not respond.
  std::vector<int> lost_nodes() const;

 private:
  struct Node {
    bool joined = false;
    std::string lost;  // reason; empty while the launcher is alive
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
  void drop_unresponsive_nodes();
  void finish_attempt_if_all_ended();
  void finish_attempt();
  JobResult attempt_result() const;
  int lost_node() const;  ///< the first lost node, or -1
  std::string node_text(int node) const;
  void finish(int status, const std::string& message, int failed_rank = -1);

  const JobOptions& options_;
  const Hooks hooks_;
  FileDescriptor failure_fd_;
  std::vector<Node> nodes_;
  std::vector<Rank> ranks_;  // of the current attempt; empty before the first attempt
  std::string run_id_;
  int restart_ = 0;
  int interrupt_ = 0;
  bool failed_ = false;
  bool finished_ = false;
  JobResult result_;
  Clock::time_point join_deadline_;
  bool no_deadlines_ = false;                                   // a rank runs under gdb
  Clock::time_point exit_deadline_ = Clock::time_point::max();  // after a failure
  Clock::time_point next_response_deadline_ = Clock::time_point::max();
  std::unique_ptr<StoreServer> server_;
  HookHandle watch_;  // of server_'s failures; declared after server_ because it must be destroyed first
};

}}}  // namespace tandem::v0::distributed
