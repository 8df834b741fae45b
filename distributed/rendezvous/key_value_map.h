// Keys and values of a store, and the rules for changing them; shared by the stores. Private to distributed/.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Not thread-safe: the store that owns it has a lock.
class TANDEM_API KeyValueMap {
 public:
  /// Null if the key is missing.
  const std::string* find(const std::string& key) const;
  bool has_all(const std::vector<std::string>& keys) const;
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  bool erase(const std::string& key) { return values_.erase(key) > 0; }

  /// The sum that Store::add would set and return; does not set it. Throws CommError naming `key` if the value is not
  /// an integer, or on overflow.
  int64_t sum(const std::string& key, int64_t delta) const;
  /// Whether Store::compare_set should set the key.
  bool matches(const std::string& key, const std::string& expected) const;

 private:
  std::map<std::string, std::string> values_;
};

/// The time after `timeout` from now; time_point::max() for 0, which means no timeout.
TANDEM_API std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout);

}}}  // namespace tandem::v0::distributed
