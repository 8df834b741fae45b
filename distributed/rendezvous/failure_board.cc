#include <tandem/distributed/rendezvous/failure_board.h>

#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/base/log.h>

namespace tandem { inline namespace v0 { namespace distributed {

std::string failure_text(const std::string& headline, int culprit, std::string_view reason) {
  return culprit < 0 ? str(headline, "\n  ", reason) : str(headline, "\n  rank ", culprit, ": ", reason);
}

bool FailureBoard::report(RankEndEvent event) {
  event.when = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<Callback>> callbacks;
  {
    std::lock_guard lock(state_->mutex);
    for (const auto& known : state_->events) {
      if (known.rank == event.rank) return false;
    }
    state_->events.push_back(event);
    callbacks = state_->callbacks;
  }
  for (const auto& callback : callbacks) notify(*callback, event);
  return true;
}

void FailureBoard::notify(Callback& callback, const RankEndEvent& event) {
  std::lock_guard lock(callback.running);
  if (callback.removed || !callback.notified.insert(event.rank).second) return;
  try {
    callback.f(event.rank, event.reason);
  } catch (const std::exception& e) {
    log(LogLevel::kError, "store: an on_failure callback threw: ", e.what());
  }
}

HookHandle FailureBoard::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  auto callback = std::make_shared<Callback>();
  callback->f = std::move(f);
  std::vector<RankEndEvent> before;
  {
    std::lock_guard lock(state_->mutex);
    state_->callbacks.push_back(callback);
    before = state_->events;
  }
  for (const auto& event : before) notify(*callback, event);
  return HookHandle([weak = std::weak_ptr(state_), callback] {
    if (auto state = weak.lock()) {
      std::lock_guard lock(state->mutex);
      std::erase(state->callbacks, callback);
    }
    std::lock_guard lock(callback->running);
    callback->removed = true;
  });
}

std::vector<RankEndEvent> FailureBoard::events() const {
  std::lock_guard lock(state_->mutex);
  return state_->events;
}

std::optional<RankEndEvent> FailureBoard::first_failure(const std::vector<int>& ranks) const {
  std::lock_guard lock(state_->mutex);
  for (const auto& event : state_->events) {
    const bool asked =
        ranks.empty() || event.rank < 0 || std::find(ranks.begin(), ranks.end(), event.rank) != ranks.end();
    if (asked && event.end != RankEnd::kLeft) return event;
  }
  return std::nullopt;
}

void FailureBoard::clear() {
  std::vector<std::shared_ptr<Callback>> callbacks;
  {
    std::lock_guard lock(state_->mutex);
    state_->events.clear();
    callbacks = state_->callbacks;
  }
  for (const auto& callback : callbacks) {
    std::lock_guard lock(callback->running);
    callback->notified.clear();
  }
}

std::string missing_key_text(const std::string& key, const std::vector<int>& ranks, std::chrono::milliseconds timeout,
                             const FailureBoard& failures) {
  if (const auto failure = failures.first_failure(ranks)) {
    return failure->rank < 0 ? str("store: waiting for key '", key, "': ", failure->reason)
                             : str("store: waiting for key '", key, "': rank ", failure->rank, " ",
                                   failure->end == RankEnd::kFailed ? "failed: " : "", failure->reason);
  }
  std::string text = str("store: key '", key, "' was not set within ", format_seconds(timeout));
  std::string left;
  for (const auto& event : failures.events()) left += str(left.empty() ? "" : " ", event.rank);
  if (!left.empty()) text += str("\n  already left the job: rank ", left);
  return text;
}

std::string format_seconds(std::chrono::milliseconds duration) {
  return format_fixed(static_cast<double>(duration.count()) / 1000.0, 1) + " s";
}

}}}  // namespace tandem::v0::distributed
