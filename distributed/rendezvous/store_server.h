// The server of the store: one thread that serves all ranks of a job and detects when one of them ends. Private to
// distributed/.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/drop_log.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/key_value_map.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct StoreServerOptions {
  std::string host = "127.0.0.1";  ///< address or name to listen on
  int port = 0;                    ///< 0: any free port
  std::string token;               ///< wire::kTokenBytes bytes
  int world_size = 1;
  bool renew = true;  ///< after all ranks have joined and left, they may join again with an empty store
  /// A connection that has not sent the token within this time is closed.
  std::chrono::milliseconds hello_timeout{5000};
};

/// Serves the keys, and keeps the list of ends.
///
/// An unauthenticated connection cannot block the server. Sockets are nonblocking. A connection that has not sent the
/// token may send kMaxHelloPayload bytes, within hello_timeout. There may be kMaxStrangers of these connections in
/// addition to one per rank; if there are more, the oldest is closed, and a rank whose connection is closed in this way
/// is asked to try again. Every violation of the protocol closes only its own connection.
///
/// A rank that has left may join the next round after all ranks have left. Until then it is asked to try again.
///
/// Threads: the constructor binds; start() starts the only thread. State declared below mutex_ is used by that thread
/// and by callers of the public functions, all with mutex_ held. No thread blocks in a system call while it holds
/// mutex_, because sockets are nonblocking.
class TANDEM_API StoreServer {
 public:
  static constexpr size_t kMaxStrangers = 64;

  /// Binds and listens; throws IoError naming the address.
  explicit StoreServer(StoreServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }
  void start();

  /// Reports to all ranks the end of a rank that a connection cannot show.
  void report(RankEndEvent event);
  /// Reports that the process of a rank has exited; `status` as in "killed by SIGKILL". What it has sent before counts
  /// first. Its connection may still be open, because a child that it forked has inherited it; it is then closed.
  void report_exit(int rank, bool success, const std::string& status);
  /// Whether the rank has sent the token, now or earlier.
  bool has_joined(int rank);
  /// Waits until no rank is connected and, if `all_joined`, every rank has been connected. Returns false if `timeout`
  /// (0: no timeout) passed first.
  bool wait_until_empty(std::chrono::milliseconds timeout, bool all_joined = false);
  /// Closes the connection of a lost rank, so that wait_until_empty() does not wait for it.
  void disconnect(int rank);
  FailureBoard& failures() { return failures_; }

 private:
  struct Connection {
    FileDescriptor socket;
    sockaddr_storage other_end = {};  // for the log
    int rank = -1;                    // -1: has not sent the token
    bool left = false;                // has sent a goodbye: its end does not end the rank, which may have joined again
    bool closing = false;
    std::chrono::steady_clock::time_point accepted;
    SilenceWatch silence;
    wire::FrameBuffer in;
    std::string out;
    size_t sent = 0;     // bytes of `out` that were sent
    int send_error = 0;  // errno
  };
  struct Waiter {
    Connection* connection;
    uint32_t id;
  };

  void run();
  void accept_some();
  void receive(Connection& connection);
  void handle(Connection& connection, const wire::Frame& frame);
  void handle_hello(Connection& connection, const wire::Frame& frame);
  /// Starts a new round if all ranks have joined and left without failure, so that they may join again.
  bool renew();
  void set_value(const std::string& key, std::string value);
  void send(Connection& connection, wire::FrameType type, uint32_t id, std::string_view payload);
  void reply(Connection& connection, uint32_t id, wire::Status status, std::string_view text);
  void flush(Connection& connection);
  void drop(Connection& connection, const std::string& why);
  /// Called when the connection is lost: this ends its rank, unless the rank has left.
  void lose_rank(const Connection& connection, RankEnd end, const std::string& why);
  void end_rank(RankEndEvent event);
  void remove_closed();
  void drop_silent_strangers();
  void close_lost_connections();
  int poll_timeout_ms();
  void wake();

  const StoreServerOptions options_;
  FileDescriptor listener_;
  FileDescriptor wake_fd_;
  int port_ = 0;
  FailureBoard failures_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable emptied_;
  bool stop_ = false;
  bool out_of_descriptors_ = false;
  DropLog drop_log_{"store"};
  std::chrono::steady_clock::time_point next_loss_check_;  // of close_lost_connections()
  std::list<Connection> connections_;                      // a list, because Waiter and run() hold pointers
  KeyValueMap values_;
  std::map<std::string, std::vector<Waiter>> waiters_;
  std::vector<bool> joined_;
  std::vector<bool> left_;
  bool renewed_ = false;                  // all ranks had joined in an earlier round
  std::vector<RankEndEvent> broadcasts_;  // reported, not sent to the ranks yet
};

}}}  // namespace tandem::v0::distributed
