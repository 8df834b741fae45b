// State dictionaries of modules, optimizers, schedules, generators and samplers.
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

/// An ordered map from name to Tensor, int64_t, double, bool, string or nested State. Names contain no '.'; a path such
/// as "fc1.weight" addresses an entry of a nested state.
class TANDEM_API State {
 public:
  /// Type of an entry.
  using Value = std::variant<Tensor, int64_t, double, bool, std::string, std::shared_ptr<State>>;

  /// Sets the value at `path`; creates missing nested states. Throws StateError if a name before the last one is a
  /// value.
  void set(std::string_view path, Value value);
  /// Sets a nested state at `path`.
  void set(std::string_view path, State state) { set(path, std::make_shared<State>(std::move(state))); }
  /// The value at `path`; null if it does not exist.
  const Value* find(std::string_view path) const;
  /// The value at `path` as T. Throws StateError naming the path if it is missing or of another type.
  template <class T>
  const T& get(std::string_view path) const& {
    const Value* value = find(path);
    TANDEM_CHECK(StateError, value != nullptr, "State: '", path, "' is missing");
    if constexpr (std::is_same_v<T, State>) {
      auto nested = std::get_if<std::shared_ptr<State>>(value);
      TANDEM_CHECK(StateError, nested != nullptr, "State: '", path, "' is not a nested state");
      return **nested;
    } else {
      auto typed = std::get_if<T>(value);
      TANDEM_CHECK(StateError, typed != nullptr, "State: '", path, "' has a different type than requested");
      return *typed;
    }
  }
  /// As above, a copy: `model.state_dict().get<Tensor>("fc.weight")`.
  template <class T>
  T get(std::string_view path) && {
    return get<T>(path);
  }
  /// Entries of this level in the order they were set.
  const std::vector<std::pair<std::string, Value>>& entries() const& { return entries_; }
  std::vector<std::pair<std::string, Value>> entries() && { return std::move(entries_); }  ///< of a temporary
  /// All tensors, including those of nested states, with their paths, in order.
  std::vector<std::pair<std::string, Tensor>> tensors() const;
  bool empty() const { return entries_.empty(); }  ///< whether there are no entries

 private:
  /// Where `name` is, or belongs, in by_name_.
  size_t search(std::string_view name) const;
  /// Where `name` is in entries_; the number of entries if it does not exist.
  size_t position(std::string_view name) const;

  std::vector<std::pair<std::string, Value>> entries_;
  std::vector<size_t> by_name_;  ///< positions in entries_, in the order of the names
};

}}  // namespace tandem::v0
