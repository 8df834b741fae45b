// Connections between all ranks of a group. Private to distributed/backends/network.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/network/connection.h>
#include <tandem/distributed/backends/network/interface.h>
#include <tandem/distributed/backends/network/receiving_thread.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

/// The connections of one rank, the inbox for received frames, and the wake-up of callers that sleep until a frame
/// arrives.
///
/// take() reads the sockets, and sleep() waits for them. The receiving thread of the process reads too, and continues
/// to send, where that takes long or the rank sleeps elsewhere: see serve_by_thread().
class Mesh {
 public:
  using Clock = std::chrono::steady_clock;

  /// Connects all ranks of `options`; collective. Throws CommError.
  Mesh(const ProcessGroupOptions& options, const Tuning& tuning);
  /// Sends a goodbye to all peers. Waits at most 1 s until their machines have received it.
  ~Mesh();

  Connection& link(int peer) { return *links_[static_cast<size_t>(peer)]; }
  HostLayout hosts() const { return group_by_host(hosts_); }
  /// "eth0"; "" in a group of one rank.
  const std::string& interface_name() const { return interface_.name; }

  /// Appends received frames; not all, so that the rank can send in between. If another thread reads now, its frames
  /// are returned only if this call `waits` for it.
  void take(std::vector<Frame>& frames, bool waits);
  /// As Backend::do_peer_end: then take() can return all frames of that peer.
  const Backend::PeerEnd* end(int peer) const;
  bool any_ended() const { return any_ended_; }

  /// Sends a goodbye to all peers. When it returns, memory of earlier sends is not read any more, and posted memory is
  /// not written.
  void cancel();

  /// Whether the receiving thread also serves this rank. It always does after cancel() and notify().
  void serve_by_thread(bool serve);
  /// Serves this rank by the thread if a frame could not be written completely. Call it when no operation runs.
  void serve_unsent();
  /// As Backend::max_polls. A caller that polls would take the core from the receiving thread.
  int max_polls() const { return has_core_ && !is_served_ ? 200 : 1; }
  /// As Backend::do_sleep.
  void sleep(FunctionRef<bool()> changed, Clock::time_point until);
  void wake();
  /// As Backend::do_notify.
  void notify(const std::function<void()>& wake);

  // For the receiving thread.
  /// An epoll set that is ready when serve() is to be called.
  int events() const { return events_.get(); }
  /// Reads a part of what has arrived. Returns whether to call it again.
  bool serve() { return receive(false); }
  /// Detects silent peers. Returns when it is to be called again.
  Clock::time_point check();

 private:
  void join();
  void exchange_hosts(Rendezvous& rendezvous);
  void connect(Rendezvous& rendezvous, const std::string& token);
  void open(std::vector<FileDescriptor> sockets);
  /// Waits at most `patience` until the peers' machines have received the goodbye.
  void close(std::chrono::milliseconds patience);

  bool receive(bool waits);
  bool receive_once();

  const ProcessGroupOptions options_;
  const Tuning tuning_;
  std::vector<std::string> hosts_;  // identities, by rank
  Interface interface_;
  bool has_core_ = false;  // each rank of this machine

  const FileDescriptor events_;  // epoll: signal_ and the connections, edge-triggered
  const FileDescriptor signal_;
  std::vector<std::unique_ptr<Connection>> links_;
  std::shared_ptr<ReceivingThread> thread_;
  std::mutex serve_mutex_;
  std::atomic<bool> serves_always_{false};
  std::atomic<bool> is_served_{false};

  std::mutex receive_mutex_;
  std::atomic<bool> receives_again_{false};  // the thread with receive_mutex_ must read again
  std::vector<Frame> received_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Frame> inbox_;
  std::vector<std::optional<Backend::PeerEnd>> ends_;  // each is set once
  std::atomic<bool> any_ended_{false};
  std::vector<SilenceWatch> watches_;
  Clock::time_point next_look_ = {};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> polling_sleepers_{0};
  std::atomic<uint64_t> changes_{0};
  std::atomic<bool> notifies_{false};  // also_wake_ is set and does not change any more
  std::function<void()> also_wake_;
};

}}}  // namespace tandem::v0::distributed::network
