// Starts the launchers of other hosts by ssh, for tandem-run --hosts. Private to distributed/.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/launch/child_process.h>
#include <tandem/distributed/launch/group_guard.h>
#include <tandem/distributed/launch/rank_output.h>
#include <tandem/distributed/launch/rank_processes.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The ssh processes of node 0. Each gets the launchers' token by stdin, which stays open: a remote launcher stops when
/// it is closed. Not thread-safe.
class RemoteHosts {
 public:
  using Clock = std::chrono::steady_clock;

  RemoteHosts(const LauncherSignals& signals, RankOutput* output) : signals_(signals), output_(*output) {}
  /// Kills the ssh processes that are still running.
  ~RemoteHosts();
  RemoteHosts(const RemoteHosts&) = delete;
  RemoteHosts& operator=(const RemoteHosts&) = delete;

  /// Starts the launchers of nodes.hosts except the first one; node 0's launcher listens on `port`. No effect without
  /// hosts. Throws IoError if ssh cannot be executed and ResourceError if a process cannot be started.
  void start(const NodeOptions& nodes, int port);
  bool running() const;
  void add_polled(std::vector<pollfd>* polled) const;
  /// Returns the launchers that ended since the last call: the node and the reason, as in "is not running (ssh: exit
  /// status 255)". Call after poll() and at next_deadline().
  std::vector<std::pair<int, std::string>> step();
  Clock::time_point next_deadline() const;

 private:
  struct Host {
    FileDescriptor stdin_pipe;
    Child child;  // pid -1: ended
  };

  const LauncherSignals& signals_;
  RankOutput& output_;
  std::optional<GroupGuard> guard_;
  std::string ssh_;
  std::vector<Host> hosts_;  // hosts_[i] is node i + 1
};

}}}  // namespace tandem::v0::distributed
