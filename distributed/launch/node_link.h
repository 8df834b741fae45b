// The launchers' own store: how those of several hosts come together, and the letters between them.  Private to
// distributed/.
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

/// One launcher's end.  Node 0 hosts the store; the connections say who is alive.  Letters to node 0 are numbered keys
/// "up/1", "up/2" .. in the order in which they were written; those of node 0, which all others read, are "down/1" ..
///
/// Used by one thread, which nothing here makes wait once the launcher has joined; of its own threads one writes letters
/// and one waits for them.
class TANDEM_API NodeLink {
 public:
  /// Node 0 listens; the others connect, trying again until options.timeout has passed.  `interrupted` is asked while that
  /// takes long.  Throws IoError where node 0 cannot listen, CommError where node 0 is not reached, does not know the token
  /// or has a launcher of this number already.
  NodeLink(const NodeOptions& options, const std::function<bool()>& interrupted);
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  /// Readable when there is something for received() or lost().
  int fd() const { return changed_fd_.get(); }
  /// To node 0; from node 0 to all others.  Where node 0 is gone lost() says so.
  void send(std::string letter);
  /// The letters that came since, in order.
  std::vector<std::string> received();
  /// Launchers that died since, and how that showed: node 0 where the connection to its store was lost, on node 0 too.  Call
  /// it before received(), which then has all letters that were sent before the loss.
  std::vector<std::pair<int, std::string>> lost();
  /// Says goodbye.  Node 0 disconnects the nodes that are given up, and gives the others a moment to leave first.
  void leave(const std::vector<int>& given_up = {});

 private:
  void stop();
  void complain(const std::string& text);
  std::unique_ptr<TcpStore> connect(int slot, std::chrono::milliseconds timeout) const;
  void read_letters();
  void write_letters();
  void notify();

  const NodeOptions options_;
  FileDescriptor changed_fd_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  HookHandle watch_;
  std::set<int> told_lost_;

  std::mutex mutex_;
  std::condition_variable changed_;  // stop_ or outgoing_
  bool stop_ = false;
  std::vector<std::string> letters_;            // received
  std::optional<std::string> connection_lost_;  // why no further letter can be read; until lost() has returned it
  std::deque<std::string> outgoing_;            // its first one is being written
  std::thread reader_;
  std::thread writer_;
};

}}}  // namespace tandem::v0::distributed
