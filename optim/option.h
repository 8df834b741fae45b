// Options of optimizers and schedules, declared by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {

class StateReader;

namespace optim {

class AnySchedule;

/// One value for all groups of an optimizer (`.max_lr = 0.1`), or one for each (`.max_lr = {0.1, 0.01}`).
template <class T>
struct PerGroup {
  std::vector<T> values;  ///< one, or one for each group

  /// One value for all groups.
  template <class Value>
  requires std::is_convertible_v<Value, T> PerGroup(Value&& value) : values{T(std::forward<Value>(value))} {}
  /// A value for each group.
  PerGroup(std::initializer_list<T> list) : values(list) {}

  /// The value of a group. Throws IndexError if there are several values but no value for this group.
  const T& operator[](int64_t group) const {
    if (values.size() == 1) return values[0];
    TANDEM_CHECK(IndexError, group >= 0 && group < static_cast<int64_t>(values.size()), "PerGroup: group is ", group,
                 ", expected 0 <= group < ", values.size(), "; give one value for each group of the optimizer");
    return values[static_cast<size_t>(group)];
  }
};

/// An option: its name in states and error texts, its value, and its valid values.
struct Option {
  const char* name;  ///< in states and error texts
  /// Where the value is stored.
  std::variant<double*, bool*, int64_t*, std::string*, std::vector<double>*, std::vector<int64_t>*, PerGroup<double>*,
               std::vector<AnySchedule>*>
      value;
  /// Describes an invalid number ("" if it is valid); null: all are valid. Lists of numbers are checked one by one.
  std::string (*problem)(const char* name, double value) = nullptr;
  std::vector<std::string> choices = {};  ///< valid strings; empty: all
};

// Checks of numbers, for Option::problem.
TANDEM_API std::string finite(const char* name, double value);        ///< a finite number
TANDEM_API std::string not_negative(const char* name, double value);  ///< a finite number >= 0
TANDEM_API std::string positive(const char* name, double value);      ///< a finite number > 0
TANDEM_API std::string in_zero_one(const char* name, double value);   ///< in [0, 1)
TANDEM_API std::string at_least_one(const char* name, double value);  ///< an integer >= 1

/// Describes the first invalid value of the options, for an optimizer with `num_groups` groups; "" if all are valid.
TANDEM_API std::string problem_of(const std::vector<Option>& options, int64_t num_groups);
/// Sets the entry `name` of `state` for each option. A list has the entries "num_<name>" and "<name>.<i>".
TANDEM_API void save_options(const std::vector<Option>& options, State& state);
/// Reads the entries of save_options below `path` ("" or "groups.0."). Options without an entry keep their values.
TANDEM_API void load_options(const std::vector<Option>& options, StateReader& reader, const std::string& path);

}  // namespace optim

}}  // namespace tandem::v0
