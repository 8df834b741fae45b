#include <tandem/distributed/store/memory_store.h>

#include <tandem/base/error.h>

namespace tandem::inline v0::distributed {

void MemoryStore::set(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return values_.contains(key) || failures_.first_failure(); });
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  const auto failure = failures_.first_failure();
  throw CommError(missing_key_text(key, timeout, failures_), -1, failure ? failure->rank : -1);
}

int64_t MemoryStore::add(const std::string& key, int64_t delta) {
  std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = add_to_value(key, value, delta);
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

void MemoryStore::announce_failure(int rank, const std::string& reason) { report({rank, RankEnd::kFailed, reason}); }

void MemoryStore::leave(int rank) { report({rank, RankEnd::kLeft, "left the job"}); }

void MemoryStore::report(RankEndEvent event) {
  failures_.report(std::move(event));
  // The lock orders this with a get() that has looked at the board and is about to sleep.
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

HookHandle MemoryStore::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  return failures_.on_failure(std::move(f));
}

std::string missing_key_text(const std::string& key, std::chrono::milliseconds timeout, const FailureBoard& failures) {
  if (const auto failure = failures.first_failure()) {
    return failure->rank < 0 ? str("store: waiting for key '", key, "': ", failure->reason)
                             : str("store: waiting for key '", key, "': rank ", failure->rank, " ",
                                   failure->end == RankEnd::kFailed ? "failed: " : "", failure->reason);
  }
  std::string text = str("store: key '", key, "' was not set within ", format_seconds(timeout));
  std::string left;
  for (const auto& event : failures.events()) left += str(left.empty() ? "" : " ", event.rank);
  if (!left.empty()) text += str("\n  left the job before: rank ", left);
  return text;
}

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace tandem::inline v0::distributed
