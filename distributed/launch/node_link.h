// Connects the launchers of several hosts through a store of their own. Private to distributed/.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_processes.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Message channel between one launcher and the others. Node 0 hosts the store; lost connections reveal dead
/// launchers. Messages to node 0 are stored under the keys "up/1", "up/2", ..., messages from node 0 to all others
/// under "down/1", "down/2", ...
///
/// Not thread-safe. After construction no method but leave() blocks: two internal threads send and receive.
class TANDEM_API NodeLink {
 public:
  /// Node 0 listens; the others connect, with retries until options.timeout. `interrupted` is polled between attempts.
  /// Throws IoError if node 0 cannot listen; CommError if node 0 is not reachable, rejects the token, or already has a
  /// launcher with this node number.
  NodeLink(const NodeOptions& options, const std::function<bool()>& interrupted);
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  /// Port of node 0's launcher.
  int port() const { return options_.port; }
  /// Readable when received() or lost() may return new entries.
  int fd() const { return changed_fd_.get(); }
  /// Sends to node 0, or from node 0 to all others. If node 0 is lost, lost() reports it.
  void send(std::string message);
  /// Messages received since the last call, in order.
  std::vector<std::string> received();
  /// Nodes whose launchers were lost since the last call, with the reason. Node 0 if the connection to its store was
  /// lost, also on node 0 itself. Call before received(), which then returns all messages sent before the loss.
  std::vector<std::pair<int, std::string>> lost();
  /// Leaves the store. Node 0 disconnects `lost_nodes` and waits a few seconds for the others to leave.
  void leave(const std::vector<int>& lost_nodes = {});

 private:
  void stop();
  void report_conflict(const std::string& text);
  std::unique_ptr<TcpStore> connect(int rank, std::chrono::milliseconds timeout) const;
  void receive_messages();
  void send_messages();
  void notify();

  NodeOptions options_;
  FileDescriptor changed_fd_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  HookHandle watch_;
  std::set<int> reported_lost_;

  std::mutex mutex_;
  std::condition_variable changed_;  // stop_ or outgoing_
  bool stop_ = false;
  std::vector<std::string> received_;
  std::optional<std::string> connection_lost_;  // reason; reset when lost() has returned it
  std::deque<std::string> outgoing_;            // the first element is being sent
  std::thread reader_;
  std::thread writer_;
};

}}}  // namespace tandem::v0::distributed
