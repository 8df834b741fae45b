#include <tandem/distributed/late_backend.h>

#include <csignal>

#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/store/failure_board.h>
#include <tandem/distributed/store/forwarding_store.h>

namespace tandem::inline v0::distributed {

namespace {

constexpr std::chrono::seconds kPatience{1};

}  // namespace

/// Until it is cancelled it passes everything on; then it behaves as if its host were lost.
class LateBackend::CancelledStore final : public ForwardingStore {
 public:
  explicit CancelledStore(std::shared_ptr<Store> store)
      : ForwardingStore(std::move(store)), ends_(store_->on_failure([this](int rank, const std::string& reason) {
          board_.report({.rank = rank, .end = RankEnd::kFailed, .reason = reason});
        })) {}

  void cancel() {
    is_cancelled_ = true;
    board_.report({.rank = -1, .end = RankEnd::kFailed, .reason = kReason});
  }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    if (is_cancelled_) throw CommError(kReason);
    return ForwardingStore::get_from(key, ranks, timeout);
  }
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override {
    return board_.on_failure(std::move(f));
  }

 private:
  static constexpr const char* kReason = "the group was destroyed before all members had come";

  FailureBoard board_;
  std::atomic<bool> is_cancelled_{false};
  HookHandle ends_;
};

LateBackend::LateBackend(const ProcessGroupOptions& options,
                         std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)> make)
    : store_(std::make_shared<CancelledStore>(options.store)), options_([&] {
        ProcessGroupOptions mine = options;
        mine.store = store_;
        return mine;
      }()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of the program
  thread_ = std::thread([this, f = std::move(make), context = RankContext::current()]() mutable {
    const RankContext::Use use(context);
    this->make(f);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LateBackend::~LateBackend() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return state_.load() != State::kComing; });
  }
  if (made() == nullptr) store_->cancel();
  thread_.join();
}

void LateBackend::make(const std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>& make) {
  State state = State::kMade;
  try {
    backend_ = make(options_);
  } catch (const CommError& e) {
    error_.emplace(str(" failed\n  ", e.what()), e.what(), e.peer());
    state = State::kFailed;
  } catch (const std::exception& e) {
    error_.emplace(str(" failed\n  ", e.what()), e.what(), job_rank(options_, options_.rank));
    state = State::kFailed;
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

void LateBackend::check() const {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kFailed) throw *error_;
  if (state == State::kComing && is_aborted_.load(std::memory_order_acquire)) throw *aborted_;
}

void LateBackend::when_made(std::function<void(Backend&)> f) {
  {
    std::lock_guard lock(mutex_);
    if (state_.load() != State::kMade) {
      when_made_.push_back(std::move(f));
      return;
    }
  }
  f(*backend_);
}

const char* LateBackend::name() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->name() : "members to come";
}

std::string LateBackend::describe() const {
  const Backend* backend = made();
  return backend != nullptr ? backend->describe() : "members to come";
}

bool LateBackend::may_spin() const {
  const Backend* backend = made();
  return backend != nullptr && backend->may_spin();
}

void LateBackend::do_start(const Collective& collective) {
  if (Backend* backend = made()) return backend->do_start(collective);
  collective_ = &collective;
}

bool LateBackend::do_announce(const Collective& next, bool input_is_ready) {
  Backend* backend = made();
  return backend != nullptr && collective_ == nullptr && backend->do_announce(next, input_is_ready);
}

Advance LateBackend::do_advance() {
  check();
  Backend* backend = made();
  if (backend == nullptr) return Advance::kIdle;
  if (collective_ != nullptr) backend->do_start(*std::exchange(collective_, nullptr));
  return backend->do_advance();
}

void LateBackend::do_start_transfer(Transfer& transfer) {
  // Not before those that wait: their order is what peers compare.
  if (Backend* backend = made(); backend != nullptr && transfers_.empty()) return backend->do_start_transfer(transfer);
  transfers_.push_back(&transfer);
}

Advance LateBackend::do_advance_transfers() {
  check();
  Backend* backend = made();
  if (backend == nullptr) return Advance::kIdle;
  for (Transfer* transfer : std::exchange(transfers_, {})) backend->do_start_transfer(*transfer);
  return backend->do_advance_transfers();
}

void LateBackend::do_sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  if (Backend* backend = made()) return backend->do_sleep(changed, until);
  uint64_t before = 0;
  {
    std::lock_guard lock(mutex_);
    before = wakes_;
  }
  if (changed()) return;
  constexpr std::chrono::hours kLong{1};
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, std::min(until, Clock::now() + kLong),
                      [&] { return wakes_ != before || state_.load() != State::kComing; });
}

void LateBackend::do_wake() {
  if (Backend* backend = made()) return backend->do_wake();
  {
    std::lock_guard lock(mutex_);
    ++wakes_;
  }
  changed_.notify_all();
  if (Backend* backend = made()) backend->do_wake();  // whoever has gone to sleep there since
}

void LateBackend::do_abort(int culprit, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_.emplace(failure_text(" failed", culprit, reason), reason, culprit);
    is_aborted_.store(true, std::memory_order_release);
  }
  when_made([=](Backend& backend) { backend.do_abort(culprit, reason); });
  do_wake();
}

void LateBackend::do_hear_failure(int culprit, const std::string& reason) {
  when_made([=](Backend& backend) { backend.do_hear_failure(culprit, reason); });
}

RefPtr<Storage> LateBackend::do_allocate(int64_t num_bytes) {
  Backend* backend = made();
  return backend != nullptr ? backend->do_allocate(num_bytes) : Storage::allocate(Device(), num_bytes);
}

LastStarted LateBackend::do_last_started(int rank) const {
  const Backend* backend = made();
  return backend != nullptr ? backend->do_last_started(rank) : LastStarted();
}

std::vector<int> LateBackend::do_awaited() {
  Backend* backend = made();
  return backend != nullptr && collective_ == nullptr ? backend->do_awaited() : std::vector<int>();
}

}  // namespace tandem::inline v0::distributed
