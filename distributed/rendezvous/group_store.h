// The view that the members of a group have of their store. Private to distributed/.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Reserves the group's name and keeps track of the keys that this rank writes. Everything that uses the group's keys
/// holds a reference. After the destructor has run on all members, the store has no key of the group: the last member
/// deletes the keys of all members. Until then the name is reserved.
class GroupStore final : public ForwardingStore {
 public:
  /// Throws CommError if this rank already uses the name.
  explicit GroupStore(const ProcessGroupOptions& options);
  ~GroupStore() override;

  void set(const std::string& key, const std::string& value) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  void offer(const std::string& key, const std::string& value) override;
  bool delete_key(const std::string& key) override;
  void forget(const std::string& prefix) override;

 private:
  void remember(const std::string& key);
  std::string member(int rank) const { return str(prefix_, "members/", rank); }
  std::string left(int rank) const { return str(prefix_, "left/", rank); }

  const int rank_;
  const int world_size_;
  const std::string prefix_;
  std::mutex mutex_;
  std::set<std::string> keys_;  // of this rank: written, and perhaps not deleted
};

}}}  // namespace tandem::v0::distributed
