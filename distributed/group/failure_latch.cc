#include <tandem/distributed/group/failure_latch.h>

#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/failure_board.h>
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

GroupError Failure::error(const char* headline) const {
  return {is_mismatch ? str(": ", reason) : failure_text(headline, culprit, reason), reason, culprit};
}

bool FailureLatch::Known::is_failing() const {
  const auto has_failed = [](const std::optional<End>& end) { return end && !end->has_left; };
  return failure || store || std::any_of(ended.begin(), ended.end(), has_failed);
}

FailureLatch::FailureLatch(const ProcessGroupOptions& options) : options_(options) {
  known_.version = version_;
  known_.ended.resize(static_cast<size_t>(options.world_size));
}

std::string FailureLatch::key() const { return str("group/", options_.name, "/failed"); }

void FailureLatch::listen(std::function<void(const Known&)> f) {
  listener_ = std::move(f);
  if (options_.store == nullptr) return;
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
}

void FailureLatch::set(const Failure& failure) {
  bool is_first = false;
  change([&](Known& known) {
    is_first = !known.failure;
    if (!is_first) return;
    known.failure = failure;
    known.failed_at = Clock::now();
  });
  if (is_first && options_.store != nullptr) options_.store->offer(key(), encode(failure));
}

void FailureLatch::change(const std::function<void(Known&)>& f) {
  std::lock_guard listening(listening_);
  Known known;
  {
    std::lock_guard lock(mutex_);
    f(known_);
    ++known_.version;
    version_.store(known_.version, std::memory_order_release);
    is_failing_.store(known_.is_failing(), std::memory_order_release);
    known = known_;
  }
  if (listener_) listener_(known);
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
    if (!end && link->has_left && (known.store || waits_until(link->when + kReasonTime))) continue;
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
