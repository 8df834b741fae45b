#include <tandem/distributed/rendezvous/group_store.h>

#include <chrono>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

GroupStore::GroupStore(const ProcessGroupOptions& options)
    : ForwardingStore(options.store),
      rank_(options.rank),
      world_size_(options.world_size),
      prefix_(str("group/", options.name, "/")) {
  if (store_->add(member(rank_), 1) != 1)
    fail_to_join(options, "a group with this name exists in this job; destroy it on all members first");
}

GroupStore::~GroupStore() {
  try {
    wire::PayloadWriter list;
    list.number(static_cast<int64_t>(keys_.size()));
    for (const std::string& key : keys_) list.text(key);
    store_->set(left(rank_), list.take());
    const std::string num_left = prefix_ + "left";
    if (store_->add(num_left, 1) < world_size_) return;
    std::set<std::string> keys = {num_left};
    for (int rank = 0; rank < world_size_; ++rank) {
      const std::string text = store_->get_from(left(rank), {}, std::chrono::seconds(1));
      wire::PayloadReader reader(text);
      for (int64_t count = reader.count(1); count > 0; --count) keys.insert(reader.text());
      keys.insert(left(rank));
    }
    for (const std::string& key : keys) store_->delete_key(key);
    // Last: from here on the members may create another group with this name.
    for (int rank = 0; rank < world_size_; ++rank) store_->delete_key(member(rank));
  } catch (const Error&) {
    // The store is lost, or this rank has left the job.
  }
}

void GroupStore::remember(const std::string& key) {
  std::lock_guard lock(mutex_);
  keys_.insert(key);
}

void GroupStore::set(const std::string& key, const std::string& value) {
  remember(key);
  ForwardingStore::set(key, value);
}

int64_t GroupStore::add(const std::string& key, int64_t delta) {
  remember(key);
  return ForwardingStore::add(key, delta);
}

std::string GroupStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  remember(key);
  return ForwardingStore::compare_set(key, expected, desired);
}

void GroupStore::offer(const std::string& key, const std::string& value) {
  remember(key);
  ForwardingStore::offer(key, value);
}

bool GroupStore::delete_key(const std::string& key) {
  {
    std::lock_guard lock(mutex_);
    keys_.erase(key);
  }
  return ForwardingStore::delete_key(key);
}

void GroupStore::forget(const std::string& prefix) {
  std::lock_guard lock(mutex_);
  const auto first = keys_.lower_bound(prefix);
  auto end = first;
  while (end != keys_.end() && end->starts_with(prefix)) ++end;
  keys_.erase(first, end);
}

}}}  // namespace tandem::v0::distributed
