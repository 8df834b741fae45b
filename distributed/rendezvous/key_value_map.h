// What a store holds, and the rules of its changes; shared by the stores. Private to distributed/.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Not safe from many threads: its store has a lock.
class TANDEM_API KeyValueMap {
 public:
  /// Null where the key is missing.
  const std::string* find(const std::string& key) const;
  bool has_all(const std::vector<std::string>& keys) const;
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  bool erase(const std::string& key) { return values_.erase(key) > 0; }

  /// What Store::add would set and return; does not set it. Throws CommError naming `key` where the value is no
  /// integer, or the sum too large for one.
  int64_t sum(const std::string& key, int64_t delta) const;
  /// Whether Store::compare_set is to set the key.
  bool matches(const std::string& key, const std::string& expected) const;

 private:
  std::map<std::string, std::string> values_;
};

/// When `timeout` has passed; time_point::max() for 0, which is none.
TANDEM_API std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout);

}}}  // namespace tandem::v0::distributed
