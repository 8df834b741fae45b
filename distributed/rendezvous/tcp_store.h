// A rank's end of the store of processes. Private to distributed/.
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
  /// 0 = none, and no reply_timeout: whoever wants no deadlines may have stopped the host in a debugger.
  std::chrono::milliseconds connect_timeout{60000};
  /// For requests that the host answers at once. A machine may be busy, so this is no measure of its health.
  std::chrono::milliseconds reply_timeout{30000};
};

/// One connection, kept for the rank's life: its end is how the others notice that this rank died.
///
/// Safe from many threads. A control thread receives: it hands replies to their callers and runs the on_failure
/// callbacks, which therefore must not call the store.
class TANDEM_API TcpStore final : public Store {
 public:
  /// Connects and shows the token. Throws CommError if that has not succeeded by the deadline.
  explicit TcpStore(const TcpStoreOptions& options);
  /// Without leave() before, the others see this rank die.
  ~TcpStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t num_keys() override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  void announce_failure(int rank, const std::string& reason) override;
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override;

  /// Says goodbye and disconnects; the others learn that this rank left the job. Callers that still wait here, and
  /// later calls, fail.
  void leave();
  void leave(int rank) override;
  /// Disconnects without a goodbye: the others see this rank die. Callers that still wait here, and later calls, fail.
  void disconnect();
  /// Runs the host as long as this lives, and until leave() has seen the other ranks leave too.
  void keep(std::unique_ptr<StoreServer> server);
  FailureBoard& failures() { return failures_; }

 private:
  struct Request {
    bool done = false;
    wire::Status status = wire::Status::kOk;
    std::string text;
  };

  /// What has become of an attempt to join: nothing while it is welcome.
  struct Refusal {
    std::string text;
    bool again = false;  ///< may pass by itself
    bool mute = false;   ///< the host has closed without a word
  };
  void join();
  Refusal shake_hands(std::chrono::steady_clock::time_point deadline);
  /// Sends a request and waits for its reply. Null where the deadline passed first, or, where `awaited` is given, one
  /// of those ranks failed.
  std::unique_ptr<Request> call(wire::FrameType type, std::string_view payload,
                                std::chrono::steady_clock::time_point deadline, const std::vector<int>* awaited,
                                uint32_t* id);
  /// As above with the limit for requests that the host answers at once; throws CommError instead of returning null.
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
  std::unique_ptr<StoreServer> server_;  // ends after the connection
  FileDescriptor fd_;
  FileDescriptor wake_fd_;
  wire::FrameBuffer in_;  // belongs to the control thread once that runs
  FailureBoard failures_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a request was answered or sent, the connection was lost, or a rank ended
  uint32_t next_id_ = 1;
  std::map<uint32_t, Request*> pending_;
  bool stop_ = false;
  bool sending_ = false;  // one frame at a time on the socket
  int send_error_ = 0;    // errno of the send that failed
  std::string cut_;       // why this side ended the connection
  std::string lost_;      // why the connection is gone; empty while it lives
};

}}}  // namespace tandem::v0::distributed
