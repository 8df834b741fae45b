// The store's host: one thread that serves all ranks of a job, and notices when one of them ends. Private to
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
  int port = 0;                    ///< 0: any free one
  std::string token;               ///< wire::kTokenBytes bytes
  int world_size = 1;
  bool renew = true;  ///< once all ranks have joined and left they may join again, and find an empty store
  /// Whoever has not shown the token by then is disconnected.
  std::chrono::milliseconds hello_timeout{5000};
};

/// Serves the keys, and keeps the list of ends.
///
/// Nothing that a stranger sends or leaves out blocks it: sockets never block, a connection that has not shown the
/// token may send kMaxHelloPayload bytes within hello_timeout, there are at most kMaxStrangers of those beside one for
/// each rank, and every breach of the protocol closes that one connection. Where there are too many the oldest is
/// closed; a rank that this hits is asked to try again.
///
/// A rank that has left may come back for the next round, when all have left; until then it is asked to try again.
///
/// Threads: the constructor binds; start() makes the only thread. All state below mutex_ belongs to that thread and to
/// callers of the public functions, each holding mutex_; nobody sleeps or sends while holding it, as sockets never
/// block.
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

  /// Tells all ranks that one ended which the connection cannot tell about: it never joined, or its process is known
  /// dead.
  void report(RankEndEvent event);
  /// Whether the rank has shown the token, now or earlier.
  bool has_joined(int rank);
  /// Waits until no rank is connected, and, where `all_joined`, each has been; false if `timeout` (0: none) passed
  /// first.
  bool wait_until_empty(std::chrono::milliseconds timeout, bool all_joined = false);
  /// Closes the connection of a rank that is given up; nobody waits for it then.
  void disconnect(int rank);
  FailureBoard& failures() { return failures_; }

 private:
  struct Connection {
    int fd = -1;
    sockaddr_storage other_end = {};  // for the log
    int rank = -1;                    // -1: has not shown the token
    bool left = false;                // has said goodbye: its end is none of the rank's, who may have joined again
    bool closing = false;
    std::chrono::steady_clock::time_point accepted;
    SilenceWatch silence;
    wire::FrameBuffer in;
    std::string out;
    size_t sent = 0;     // of `out`
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
  /// Ends the round where all ranks have joined and left in peace, so that they may join again.
  bool renew();
  void set_value(const std::string& key, std::string value);
  void send(Connection& connection, wire::FrameType type, uint32_t id, std::string_view payload);
  void reply(Connection& connection, uint32_t id, wire::Status status, std::string_view text);
  void flush(Connection& connection);
  void drop(Connection& connection, const std::string& why);
  /// The connection is no more; unless its rank has left, that is its end.
  void lose_rank(const Connection& connection, RankEnd end, const std::string& why);
  void end_rank(RankEndEvent event);
  void remove_closed();
  void drop_silent_strangers();
  void look_for_silence();
  int poll_timeout_ms();
  void wake();

  const StoreServerOptions options_;
  int listen_fd_ = -1;
  int wake_fd_ = -1;
  int port_ = 0;
  FailureBoard failures_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable emptied_;
  bool stop_ = false;
  bool out_of_descriptors_ = false;
  DropLog drop_log_{"store"};
  std::chrono::steady_clock::time_point next_look_;  // for silence
  std::list<Connection> connections_;                // a list: Waiter and the loop hold pointers
  KeyValueMap values_;
  std::map<std::string, std::vector<Waiter>> waiters_;
  std::vector<bool> joined_;
  std::vector<bool> left_;
  bool renewed_ = false;                  // all ranks had joined before
  std::vector<RankEndEvent> broadcasts_;  // reported, not yet told to the ranks
};

}}}  // namespace tandem::v0::distributed
