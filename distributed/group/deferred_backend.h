// A backend that connects later. Private to distributed/.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backends/backend.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// For groups whose members join in any order: only operations wait for the members. The operations begin when all
/// members have joined. If that fails, they fail with the reason.
class DeferredBackend final : public Backend {
 public:
  /// Calls make(options) on its own thread, with a store that is cancelled when this object is destroyed.
  DeferredBackend(const ProcessGroupOptions& options,
                  std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)> make);
  /// Waits up to 1 s for missing members, unless an exception is in flight. Members that join later are notified.
  ~DeferredBackend() override;
  DeferredBackend(const DeferredBackend&) = delete;
  DeferredBackend& operator=(const DeferredBackend&) = delete;

  const char* name() const override;
  std::string describe() const override;
  bool has_members() const override { return made() != nullptr; }
  int max_polls() const override;
  void do_start(const Collective& collective) override;
  bool do_prefetch_signature(const Collective& next, bool input_is_ready) override;
  Advance do_advance() override;
  void do_start_p2p(P2pRequest& transfer) override;
  Advance do_advance_p2p() override;
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override;
  void do_wake() override;
  void do_cancel() override;
  const PeerEnd* do_peer_end(int rank) override;
  bool do_drain(int rank) override;
  std::chrono::milliseconds arrival_time() const override;
  bool do_needs(int rank) override;
  bool do_needs_p2p(int rank) override;
  LastStarted do_last_started(int rank) const override;
  std::vector<int> do_awaited() override;

 private:
  class CancelledStore;
  enum class State : uint8_t { kComing, kMade, kFailed };

  void make(const std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>& make);
  /// Null until the backend is made.
  Backend* made() const { return state_.load(std::memory_order_acquire) == State::kMade ? backend_.get() : nullptr; }
  /// Throws if the backend could not be made.
  void check() const;
  /// Calls f(backend) when the backend is made, or immediately if it already is.
  void when_made(std::function<void(Backend&)> f);

  const std::shared_ptr<CancelledStore> store_;
  const ProcessGroupOptions options_;
  std::unique_ptr<Backend> backend_;
  std::atomic<State> state_{State::kComing};
  std::optional<GroupError> error_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t wakes_ = 0;
  std::vector<std::function<void(Backend&)>> when_made_;

  // Used only by the thread that runs the group: operations that were started before the backend was made.
  const Collective* collective_ = nullptr;
  std::vector<P2pRequest*> transfers_;

  std::thread thread_;
};

}}}  // namespace tandem::v0::distributed
