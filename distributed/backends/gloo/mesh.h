// Links between all ranks of a group. Private to distributed/backends/gloo.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/backends/gloo/interface.h>
#include <tandem/distributed/backends/gloo/link.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace gloo::transport {
class Context;
class Device;
}  // namespace gloo::transport

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// The links of one rank, the inbox for received frames, and the wake-up of callers that sleep until a frame arrives.
class Mesh final : private LinkEvents {
 public:
  using Clock = std::chrono::steady_clock;

  /// Connects all ranks of `options`; collective. Throws CommError.
  Mesh(const ProcessGroupOptions& options, const Tuning& tuning);
  /// Sends a goodbye to all peers. Waits at most 1 s until they have acknowledged it.
  ~Mesh() override;

  Link& link(int peer) { return *links_[static_cast<size_t>(peer)]; }
  HostLayout hosts() const { return group_by_host(hosts_); }
  /// "eth0"; "" in a group of one rank.
  const std::string& interface_name() const { return interface_.name; }

  /// Appends the received frames.
  void take(std::vector<Frame>& frames);
  /// Why the link to `peer` is lost: "died (its connection closed)". By then take() can return all frames of that peer.
  std::optional<std::string> lost(int peer) const;

  /// Notifies all peers that this rank no longer participates, and sends no data from now on. Returns when memory of
  /// earlier sends is no longer read: connections to peers that do not receive the data within 0.7 s are shut down.
  void poison(const std::string& payload);

  /// As Backend::do_sleep.
  void sleep(FunctionRef<bool()> changed, Clock::time_point until);
  void wake();
  /// As Backend::do_notify.
  void notify(const std::function<void()>& wake);
  /// Rank `job_rank` (-1: the store's host, so possibly any rank) no longer participates: poison() and close() wait for
  /// it only briefly.
  void expect_nothing_of(int job_rank);

 private:
  class Flusher;

  void join();
  void connect(Rendezvous& rendezvous, const std::string& token);
  std::string start_links();
  void set_send_buffer(size_t peer);
  /// Waits at most `patience` until the peers have acknowledged the goodbye.
  void close(std::chrono::milliseconds patience);

  void frame_arrived(Frame frame) override;
  void link_moved(int peer) override;
  void flush_wanted() override;
  void link_lost(int peer, const std::string& why, bool left) override;
  void close_lost_connections();
  void stop_polling();

  const ProcessGroupOptions options_;
  const Tuning tuning_;
  const size_t max_payload_;
  std::vector<std::string> hosts_;  // identities, by rank
  Interface interface_;

  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<FileDescriptor> sockets_;    // of the connections, by rank: Gloo cannot end one and wake all its waiters
  std::vector<SilenceWatch> watches_;      // by rank, for sockets_
  std::vector<std::atomic<bool>> gone_;    // by rank: no acknowledgement is expected from it
  std::vector<std::atomic<bool>> silent_;  // by rank: its connection was closed because it did not respond
  std::vector<std::unique_ptr<Link>> links_;
  std::unique_ptr<Flusher> flusher_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Frame> inbox_;
  std::vector<std::optional<std::string>> lost_;
  bool polls_ = true;  // link_lost waits for the reason why a peer left
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint64_t> changes_{0};
  std::atomic<bool> notifies_{false};  // also_wake_ is set and does not change any more
  std::function<void()> also_wake_;

  bool has_started_ = false;  // used only by the thread that creates and destroys this object
};

}}}  // namespace tandem::v0::distributed::gloo
