// What modules, optimizers, schedules, generators and samplers save and load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// An ordered map from name to Tensor, int64_t, double, bool, string or State.  Names hold no '.'; a path such as
/// "fc1.weight" walks through nested states.
class TANDEM_API State {
 public:
  using Value = std::variant<Tensor, int64_t, double, bool, std::string, std::shared_ptr<State>>;

  /// Sets the value at `path`, making the states on the way.  Throws StateError if a name on the way is a value.
  void set(std::string_view path, Value value);
  void set(std::string_view path, State state) { set(path, std::make_shared<State>(std::move(state))); }
  /// The value at `path`, null if there is none.
  const Value* find(std::string_view path) const;
  /// The value at `path` as T.  Throws StateError naming the path if it is missing or of another type.
  template <class T>
  const T& get(std::string_view path) const {
    const Value* value = find(path);
    TANDEM_CHECK(StateError, value != nullptr, "State: '", path, "' is missing");
    if constexpr (std::is_same_v<T, State>) {
      auto nested = std::get_if<std::shared_ptr<State>>(value);
      TANDEM_CHECK(StateError, nested != nullptr, "State: '", path, "' is no nested state");
      return **nested;
    } else {
      auto typed = std::get_if<T>(value);
      TANDEM_CHECK(StateError, typed != nullptr, "State: '", path, "' has another type than asked for");
      return *typed;
    }
  }
  /// Entries of this level in the order they were set.
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  /// All tensors below, with their paths, in order.
  std::vector<std::pair<std::string, Tensor>> tensors() const;
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

}}  // namespace tandem::v0
