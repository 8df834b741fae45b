#include <tandem/distributed/group/deferred_backend.h>

#include <algorithm>
#include <exception>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::chrono::seconds kStoreTimeout{1};

}  // namespace

/// Forwards all calls until it is cancelled; then it behaves as if the store's host were lost. A member that gives up
/// stores the reason under one key. A joining rank whose wait has timed out reads that key and treats the reason as the
/// end of a rank.
class DeferredBackend::CancelledStore final : public ForwardingStore {
 public:
  explicit CancelledStore(const ProcessGroupOptions& options)
      : ForwardingStore(options.store),
        own_rank_(job_rank(options, options.rank)),
        ends_(store_->on_failure([this](int rank, const std::string& reason) { report(rank, reason); })) {}

  void cancel() {
    cancel(own_rank_, kReason);
    is_cancelled_ = true;
    report(-1, kReason);
  }
  /// Records only the first reason. The joining thread publishes it, so that no other thread waits for the store.
  void cancel(int culprit, const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (!cancelled_.empty()) return;
    cancelled_ = str(culprit < 0 ? own_rank_ : culprit, " ", reason.substr(0, kMaxReason));
  }
  /// Called on the joining thread.
  void publish() {
    {
      std::lock_guard lock(mutex_);
      if (is_published_ || cancelled_.empty()) return;
      is_published_ = true;
    }
    try {
      store_->compare_set(kCancelled, "", cancelled_);
    } catch (const CommError&) {
      // The store is lost; the other ranks detect that themselves.
    }
  }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    publish();
    if (is_cancelled_) throw CommError(kReason);
    try {
      return ForwardingStore::get_from(key, ranks, timeout);
    } catch (const CommError& e) {
      if (e.peer() < 0 && !is_published_) throw_if_cancelled();
      throw;
    }
  }
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override {
    return board_.on_failure(std::move(f));
  }

 private:
  static constexpr const char* kReason = "the group was destroyed before all members had joined";
  static constexpr const char* kCancelled = "given up";
  static constexpr size_t kMaxReason = 64u << 10;

  void report(int rank, const std::string& reason) {
    board_.report({.rank = rank, .end = RankEnd::kFailed, .reason = reason});
  }
  void throw_if_cancelled() {
    if (!store_->contains({kCancelled})) return;
    const std::string text = store_->get_from(kCancelled, {own_rank_}, kStoreTimeout);
    const size_t space = text.find(' ');
    const auto culprit = static_cast<int>(parse_integer(text.substr(0, space)).value_or(-1));
    const std::string reason = text.substr(space + 1);
    report(culprit, reason);
    throw CommError(reason, own_rank_, culprit);
  }

  const int own_rank_;  // in the job
  FailureBoard board_;
  std::atomic<bool> is_cancelled_{false};
  bool is_published_ = false;  // used only by the joining thread
  std::mutex mutex_;
  std::string cancelled_;  // culprit and reason; set once
  HookHandle ends_;
};

DeferredBackend::DeferredBackend(const ProcessGroupOptions& options,
                                 std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)> make)
    : store_(std::make_shared<CancelledStore>(options)), options_([&] {
        ProcessGroupOptions mine = options;
        mine.store = store_;
        return mine;
      }()) {
  thread_ = start_thread([this, f = std::move(make), context = RankContext::current()]() mutable {
    const RankContext::Use use(context);
    this->make(f);
  });
}

DeferredBackend::~DeferredBackend() {
  // An exception that ends this rank must be reported immediately.
  if (std::uncaught_exceptions() == 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kStoreTimeout, [&] { return state_.load() != State::kComing; });
  }
  if (made() == nullptr) store_->cancel();
  thread_.join();
}

void DeferredBackend::make(const std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>& make) {
  const int own_rank = job_rank(options_, options_.rank);
  State state = State::kMade;
  try {
    backend_ = make(options_);
  } catch (const CommError& e) {
    error_.emplace(str(" failed\n  ", e.what()), e.what(), e.peer(), headline_of(e));
    state = State::kFailed;
  } catch (const std::exception& e) {
    error_.emplace(str(" failed\n  ", e.what()), e.what(), own_rank);
    state = State::kFailed;
  }
  // If other ranks are missing or have failed, the remaining ranks detect that themselves.
  if (state == State::kFailed && (error_->culprit() < 0 || error_->culprit() == own_rank)) {
    store_->cancel(own_rank, error_->reason());
    store_->publish();
  }
  {
    std::lock_guard lock(mutex_);
    if (state == State::kMade) {
      for (const auto& f : when_made_) f(*backend_);
    }
    state_.store(state, std::memory_order_release);
  }
  changed_.notify_all();
}

void DeferredBackend::check() const {
  if (state_.load(std::memory_order_acquire) == State::kFailed) throw *error_;
}

void DeferredBackend::when_made(std::function<void(Backend&)> f) {
  {
    std::lock_guard lock(mutex_);
    if (state_.load() != State::kMade) {
      when_made_.push_back(std::move(f));
      return;
    }
  }
  f(*backend_);
}

const char* DeferredBackend::name() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->name() : "waiting for members";
}

std::string DeferredBackend::describe() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->describe() : "waiting for members";
}

int DeferredBackend::max_polls() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->max_polls() : 1;
}

void DeferredBackend::do_start(const Collective& collective) {
  if (Backend* backend = made()) return backend->do_start(collective);
  collective_ = &collective;
}

bool DeferredBackend::do_prefetch_signature(const Collective& next, bool input_is_ready) {
  Backend* backend = made();
  return backend != nullptr && collective_ == nullptr && backend->do_prefetch_signature(next, input_is_ready);
}

Advance DeferredBackend::do_advance() {
  check();
  Backend* backend = made();
  if (backend == nullptr) return Advance::kIdle;
  if (collective_ != nullptr) backend->do_start(*std::exchange(collective_, nullptr));
  return backend->do_advance();
}

void DeferredBackend::do_start_p2p(P2pRequest& transfer) {
  // Not before the transfers that already wait: peers compare them in order.
  if (Backend* backend = made(); backend != nullptr && transfers_.empty()) return backend->do_start_p2p(transfer);
  transfers_.push_back(&transfer);
}

Advance DeferredBackend::do_advance_p2p() {
  check();
  Backend* backend = made();
  if (backend == nullptr) return Advance::kIdle;
  for (P2pRequest* transfer : std::exchange(transfers_, {})) backend->do_start_p2p(*transfer);
  return backend->do_advance_p2p();
}

void DeferredBackend::do_sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  if (Backend* backend = made()) return backend->do_sleep(changed, until);
  uint64_t before = 0;
  {
    std::lock_guard lock(mutex_);
    before = wakes_;
  }
  if (changed()) return;
  constexpr std::chrono::hours kLongTimeout{1};
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, std::min(until, Clock::now() + kLongTimeout),
                      [&] { return wakes_ != before || state_.load() != State::kComing; });
}

void DeferredBackend::do_wake() {
  if (Backend* backend = made()) return backend->do_wake();
  {
    std::lock_guard lock(mutex_);
    ++wakes_;
  }
  changed_.notify_all();
  if (Backend* backend = made()) backend->do_wake();  // for a thread that has begun to sleep there meanwhile
}

void DeferredBackend::do_cancel() {
  when_made([](Backend& backend) { backend.do_cancel(); });
  do_wake();
}

const Backend::PeerEnd* DeferredBackend::do_peer_end(int rank) {
  Backend* backend = made();
  return backend != nullptr ? backend->do_peer_end(rank) : nullptr;
}

bool DeferredBackend::do_drain(int rank) {
  Backend* backend = made();
  return backend == nullptr || backend->do_drain(rank);
}

std::chrono::milliseconds DeferredBackend::arrival_time() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->arrival_time() : Backend::arrival_time();
}

bool DeferredBackend::do_needs(int rank) {
  Backend* backend = made();
  return backend != nullptr && collective_ == nullptr && backend->do_needs(rank);
}

bool DeferredBackend::do_needs_p2p(int rank) {
  Backend* backend = made();
  return backend != nullptr && backend->do_needs_p2p(rank);
}

LastStarted DeferredBackend::do_last_started(int rank) const {
  const Backend* backend = made();
  return backend != nullptr ? backend->do_last_started(rank) : LastStarted();
}

std::vector<int> DeferredBackend::do_awaited() {
  Backend* backend = made();
  return backend != nullptr && collective_ == nullptr ? backend->do_awaited() : std::vector<int>();
}

}}}  // namespace tandem::v0::distributed
