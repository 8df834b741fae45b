#include <tandem/distributed/group/failure_latch.h>

#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = Backend::Clock;

constexpr size_t kMaxReason = 64u << 10;
// A rank that throws out of the function that owns the group closes its connections before its error arrives.
constexpr std::chrono::milliseconds kReasonTime{500};

std::string encode(const Failure& f) {
  return wire::PayloadWriter()
      .number(f.culprit)
      .number(f.is_mismatch ? 1 : 0)
      .number(f.member)
      .number(f.first_failed)
      .text(std::string_view(f.reason).substr(0, kMaxReason))
      .take();
}

Failure decode(const std::string& value) {
  wire::PayloadReader reader(value);
  Failure f;
  f.culprit = static_cast<int>(reader.number());
  f.is_mismatch = reader.number() != 0;
  f.member = static_cast<int>(reader.number());
  f.first_failed = reader.number();
  f.reason = reader.text();
  return f;
}

}  // namespace

GroupError Failure::error(const char* after_label) const {
  const std::string text = is_mismatch  ? str(": ", reason)
                           : is_joining ? str(after_label, "\n  ", reason)
                                        : failure_text(after_label, culprit, reason);
  return {text, reason, culprit, headline, is_mismatch};
}

std::optional<Failure> FailureLatch::Known::cause(const ProcessGroupOptions& options) const {
  if (failure) return failure;
  if (store) return Failure{-1, store->reason};
  std::optional<Failure> first;
  Clock::time_point when = Clock::time_point::max();
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    if (!ended[rank] || ended[rank]->has_left || ended[rank]->when >= when) continue;
    first = Failure{job_rank(options, static_cast<int>(rank)), ended[rank]->reason};
    when = ended[rank]->when;
  }
  return first;
}

FailureLatch::FailureLatch(const ProcessGroupOptions& options) : options_(options) {
  known_.version = version_;
  known_.ended.resize(static_cast<size_t>(options.world_size));
}

std::string FailureLatch::key() const { return str("group/", options_.name, "/failed"); }

void FailureLatch::listen(std::function<void(const Known&)> f) {
  {
    std::lock_guard listening(listening_);
    listeners_.push_back(std::move(f));
    if (known_.version > 1) listeners_.back()(known_);
  }
  if (options_.store == nullptr || !handles_.empty()) return;
  handles_.push_back(
      options_.store->on_failure([this](int culprit, const std::string& reason) { note_end(culprit, reason); }));
  handles_.push_back(options_.store->watch(key(), [this](const std::string& value) {
    change([&](Known& known) {
      if (known.failure) return;
      known.failure = decode(value);
      known.failed_at = Clock::now();
    });
  }));
  // If members have ended already, the failure that may have caused it must be known first.
  if (version_ > 1) options_.store->contains({key()});
}

void FailureLatch::note_end(int culprit, const std::string& reason) {
  const End end = {reason, reason == "left the job", Clock::now()};
  if (culprit < 0) return change([&](Known& known) { known.store = end; });
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (job_rank(options_, rank) != culprit) continue;
    change([&](Known& known) {
      if (rank == options_.rank) known.has_own_ended = true;
      if (rank != options_.rank) known.ended[static_cast<size_t>(rank)] = end;
    });
  }
}

void FailureLatch::close() {
  for (HookHandle& handle : handles_) handle.remove();
  std::lock_guard listening(listening_);
  listeners_.clear();
  std::lock_guard lock(mutex_);
  options_.store = nullptr;
}

std::optional<Failure> FailureLatch::cause() const {
  std::lock_guard lock(mutex_);
  return known_.cause(options_);
}

void FailureLatch::set(const Failure& failure, bool is_of_operation) {
  bool is_first = false;
  change([&](Known& known) {
    is_first = !known.failure;
    known.has_failed_operation = known.has_failed_operation || is_of_operation;
    const bool replaces = failure.is_joining && !is_first && known.failure->member != options_.rank;
    if (!is_first && !replaces) return;
    known.failure = failure;
    known.failed_at = Clock::now();
  });
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Store> store = options_.store;
  lock.unlock();
  // Other ranks detect themselves that members are missing.
  const bool is_known_to_all =
      failure.is_joining && failure.culprit >= 0 && failure.culprit != job_rank(options_, options_.rank);
  if (is_first && !is_known_to_all && store != nullptr) store->offer(key(), encode(failure));
}

void FailureLatch::change(const std::function<void(Known&)>& f) {
  std::lock_guard listening(listening_);
  Known known;
  {
    std::lock_guard lock(mutex_);
    f(known_);
    ++known_.version;
    version_.store(known_.version, std::memory_order_release);
    known = known_;
  }
  for (const auto& listener : listeners_) listener(known);
}

void FailureLatch::read(Known& known) const {
  if (known.version == version_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  known = known_;
}

std::optional<Failure> still_needed(const Waiting& operation, const FailureLatch::Known& known, Backend& backend,
                                    const ProcessGroupOptions& options, Clock::time_point now,
                                    Clock::time_point& again) {
  const auto waits_until = [&](Clock::time_point time) {
    if (now >= time) return false;
    again = std::min(again, time);
    return true;
  };
  /// How long a rank that left may have had a reason that is not known here, for example the loss of the store's host.
  const auto reason_time = [&] {
    return options.store != nullptr && options.store->is_silent() ? kLostAfter : kReasonTime;
  };
  /// Whether data that the rank sent may still arrive.
  const auto may_send = [&](int rank) { return backend.do_peer_end(rank) == nullptr && !backend.do_drain(rank); };

  if (known.failure) {
    const Failure& failure = *known.failure;
    const int first = failure.member;
    const bool is_own = first == options.rank;
    const bool may_complete = operation.number > 0 ? operation.number < failure.first_failed
                                                   : !is_own && operation.needs(first) && may_send(first) &&
                                                         waits_until(known.failed_at + backend.arrival_time());
    if (!may_complete) return failure;
  }
  std::optional<Failure> found;
  std::pair<bool, Clock::time_point> found_order;  // a rank that left may have left because of another one
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank == options.rank || !operation.needs(rank)) continue;
    const auto& end = known.ended[static_cast<size_t>(rank)];
    const Backend::PeerEnd* const link = backend.do_peer_end(rank);
    if (!end && link == nullptr) continue;
    // The data of a rank that has left arrives in any case.
    if (link == nullptr && may_send(rank) && (end->has_left || waits_until(end->when + backend.arrival_time())))
      continue;
    if (known.failure) return known.failure;
    if (!end && link->has_left) {
      if (const auto cause = known.cause(options)) return cause;
      if (waits_until(link->when + reason_time())) continue;
    }
    const std::pair order(end ? end->has_left : link->has_left, end ? end->when : link->when);
    if (found && found_order <= order) continue;
    found = Failure{job_rank(options, rank), end ? end->reason : link->why};
    found_order = order;
  }
  if (found) return found;
  if (known.store) return Failure{-1, known.store->reason};
  return std::nullopt;
}

}}}  // namespace tandem::v0::distributed
