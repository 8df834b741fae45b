#include <tandem/distributed/store/failure_board.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include <tandem/base/error.h>
#include <tandem/base/log.h>

namespace tandem::inline v0::distributed {

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
  for (const auto& callback : callbacks) tell(*callback, event);
  return true;
}

void FailureBoard::tell(Callback& callback, const RankEndEvent& event) {
  std::lock_guard lock(callback.running);
  if (callback.removed || !callback.told.insert(event.rank).second) return;
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
  for (const auto& event : before) tell(*callback, event);
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

std::optional<RankEndEvent> FailureBoard::first_failure() const {
  std::lock_guard lock(state_->mutex);
  for (const auto& event : state_->events) {
    if (event.end != RankEnd::kLeft) return event;
  }
  return std::nullopt;
}

int64_t add_to_value(const std::string& key, const std::string& value, int64_t delta) {
  int64_t number = 0;
  if (!value.empty()) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    TANDEM_CHECK(CommError, error == std::errc() && end == value.data() + value.size(), "store: cannot add ", delta,
                 " to key '", key, "': its value '", value, "' is not an integer");
  }
  int64_t sum = 0;
  TANDEM_CHECK(CommError, !__builtin_add_overflow(number, delta, &sum), "store: adding ", delta, " to key '", key,
               "' overflows: its value is ", number);
  return sum;
}

std::string format_seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(duration.count()) / 1000.0);
  return text;
}

}  // namespace tandem::inline v0::distributed
