// The client of the store server, one per rank. Private to distributed/.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/key_watches.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string token;  ///< wire::kTokenBytes bytes
  int rank = 0;
  int world_size = 1;
  int host_rank = -1;  ///< the rank that runs the StoreServer; -1: the launcher does
  /// 0: no timeout, and no reply_timeout: a user who disables timeouts may have stopped the host in a debugger.
  std::chrono::milliseconds connect_timeout{60000};
  /// For requests that the host answers immediately. A busy machine may be slow, so a late answer does not mean that it
  /// is lost.
  std::chrono::milliseconds reply_timeout{30000};
};

/// One connection, kept for the lifetime of the rank: the other ranks detect the death of this rank when it closes.
///
/// Thread-safe. A control thread receives: it passes replies to their callers and runs the on_failure callbacks, which
/// therefore must not call the store.
class TANDEM_API TcpStore final : public Store {
 public:
  /// Connects and sends the token. Throws CommError if this does not succeed by the deadline.
  explicit TcpStore(const TcpStoreOptions& options);
  /// Without an earlier leave(), the other ranks detect this as the death of this rank.
  ~TcpStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override;
  bool contains(const std::vector<std::string>& keys) override;
  int64_t num_keys() override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  void offer(const std::string& key, const std::string& value) override;
  HookHandle watch(const std::string& key, std::function<void(const std::string& value)> f) override;
  bool delete_key(const std::string& key) override;
  void announce_failure(int rank, const std::string& reason) override;
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override;
  bool is_silent() const override;

  /// Sends a goodbye and disconnects. The other ranks are notified that this rank left the job. Waiting and later calls
  /// on this object fail.
  void leave();
  void leave(int rank) override;
  /// Disconnects without a goodbye: the other ranks detect a death. Waiting and later calls on this object fail.
  void disconnect();
  /// Keeps the server running for the lifetime of this object, or until leave() has seen the other ranks leave.
  void keep(std::unique_ptr<StoreServer> server);
  FailureBoard& failures() { return failures_; }

 private:
  struct Request {
    bool done = false;
    wire::Status status = wire::Status::kOk;
    std::string text;
  };

  /// Why an attempt to join failed; `text` is empty if it succeeded.
  struct Refusal {
    std::string text;
    bool again = false;  ///< another attempt may succeed
    bool mute = false;   ///< the host has closed the connection without an answer
  };
  void join();
  Refusal shake_hands(std::chrono::steady_clock::time_point deadline);
  /// Sends a request and waits for its reply. Returns null if the deadline passed or, if `awaited` is not null, one of
  /// those ranks failed.
  std::unique_ptr<Request> call(wire::FrameType type, std::string_view payload,
                                std::chrono::steady_clock::time_point deadline, const std::vector<int>* awaited,
                                uint32_t* id);
  /// Like call(), with the limit for requests that the host answers immediately. Throws CommError instead of returning
  /// null.
  Request call_now(wire::FrameType type, std::string_view payload);
  std::chrono::steady_clock::time_point reply_deadline() const;
  void send_all(std::string_view bytes, std::chrono::steady_clock::time_point deadline);
  void run();
  void handle(const wire::Frame& frame);
  void lose(const std::string& why);
  void cut(const std::string& why);
  std::string reason_of_loss(int error);
  std::string lost_text(const std::string& why) const;
  std::string host_text() const;

  const TcpStoreOptions options_;
  std::unique_ptr<StoreServer> server_;  // destroyed after the connection
  FileDescriptor fd_;
  FileDescriptor wake_fd_;
  wire::FrameBuffer in_;  // used only by the control thread after that has started
  FailureBoard failures_;
  KeyWatches watches_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a request was answered or sent, the connection was lost, or a rank ended
  uint32_t next_id_ = 1;
  std::map<uint32_t, Request*> pending_;
  std::map<uint32_t, std::string> watched_;  // keys of watches_, by the request that waits for them
  bool stop_ = false;
  bool sending_ = false;  // one frame at a time on the socket
  int send_error_ = 0;    // errno of the send that failed
  std::string cut_;       // why this side closed the connection
  std::string lost_;      // why the connection is lost; empty while it is open
};

}}}  // namespace tandem::v0::distributed
