#include <tandem/distributed/rendezvous/memory_store.h>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

void MemoryStore::set(const std::string& key, const std::string& value) {
  wire::check_size(key, value);
  std::unique_lock lock(mutex_);
  set(lock, key, value);
}

void MemoryStore::set(std::unique_lock<std::mutex>& lock, const std::string& key, const std::string& value) {
  values_.set(key, value);
  changed_.notify_all();
  lock.unlock();
  watches_.notify(key, value);
}

std::string MemoryStore::get_from(const std::string& key, const std::vector<int>& ranks,
                                  std::chrono::milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [&] { return values_.find(key) != nullptr || failures_.first_failure(ranks).has_value(); });
  if (const std::string* value = values_.find(key)) return *value;
  const auto failure = failures_.first_failure(ranks);
  throw CommError(missing_key_text(key, ranks, timeout, failures_), -1, failure ? failure->rank : -1);
}

bool MemoryStore::contains(const std::vector<std::string>& keys) {
  std::lock_guard lock(mutex_);
  return values_.has_all(keys);
}

int64_t MemoryStore::num_keys() {
  std::lock_guard lock(mutex_);
  return values_.size();
}

int64_t MemoryStore::add(const std::string& key, int64_t delta) {
  std::unique_lock lock(mutex_);
  const int64_t sum = values_.sum(key, delta);
  set(lock, key, std::to_string(sum));
  return sum;
}

std::string MemoryStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  wire::check_size(key, expected, desired);
  std::unique_lock lock(mutex_);
  if (!values_.matches(key, expected)) {
    const std::string* value = values_.find(key);
    return value == nullptr ? "" : *value;
  }
  set(lock, key, desired);
  return desired;
}

void MemoryStore::offer(const std::string& key, const std::string& value) { compare_set(key, "", value); }

HookHandle MemoryStore::watch(const std::string& key, std::function<void(const std::string& value)> f) {
  HookHandle handle = watches_.add(key, std::move(f));
  std::unique_lock lock(mutex_);
  const std::string* found = values_.find(key);
  if (found == nullptr) return handle;
  const std::string value = *found;
  lock.unlock();
  watches_.notify(key, value);
  return handle;
}

bool MemoryStore::delete_key(const std::string& key) {
  std::lock_guard lock(mutex_);
  return values_.erase(key);
}

void MemoryStore::announce_failure(int rank, const std::string& reason) { report({rank, RankEnd::kFailed, reason}); }

void MemoryStore::leave(int rank) { report({rank, RankEnd::kLeft, "left the job"}); }

void MemoryStore::report(RankEndEvent event) {
  failures_.report(std::move(event));
  // The lock orders this with a get() that has read the board and is about to sleep.
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

HookHandle MemoryStore::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  return failures_.on_failure(std::move(f));
}

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}}}  // namespace tandem::v0::distributed
