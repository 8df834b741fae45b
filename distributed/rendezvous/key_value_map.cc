#include <tandem/distributed/rendezvous/key_value_map.h>

#include <algorithm>
#include <charconv>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace distributed {

const std::string* KeyValueMap::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool KeyValueMap::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

int64_t KeyValueMap::sum(const std::string& key, int64_t delta) const {
  const std::string* value = find(key);
  int64_t number = 0;
  if (value != nullptr && !value->empty()) {
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    TANDEM_CHECK(CommError, error == std::errc() && end == value->data() + value->size(), "store: cannot add ", delta,
                 " to key '", key, "': its value '", *value, "' is not an integer");
  }
  int64_t sum = 0;
  TANDEM_CHECK(CommError, !__builtin_add_overflow(number, delta, &sum), "store: adding ", delta, " to key '", key,
               "' overflows: its value is ", number);
  return sum;
}

bool KeyValueMap::matches(const std::string& key, const std::string& expected) const {
  const std::string* value = find(key);
  return value == nullptr ? expected.empty() : *value == expected;
}

std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  return timeout.count() == 0 ? Clock::time_point::max() : Clock::now() + timeout;
}

}}}  // namespace tandem::v0::distributed
