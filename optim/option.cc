#include <tandem/optim/option.h>

#include <algorithm>
#include <cmath>

#include <tandem/optim/schedule.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

std::string check(bool is_valid, const char* name, double value, const char* expected) {
  return is_valid ? "" : str(name, " is ", value, ", expected ", expected);
}

/// Calls one(pointer) for a single value, list(vector) for a list of numbers, parts(schedules) for a list of schedules.
template <class One, class List, class Parts>
void visit_option(const Option& option, const One& one, const List& list, const Parts& parts) {
  std::visit(
      [&]<class T>(T* value) {
        if constexpr (std::is_same_v<T, std::vector<AnySchedule>>) {
          parts(*value);
        } else if constexpr (std::is_same_v<T, PerGroup<double>>) {
          list(value->values);
        } else if constexpr (requires { typename T::iterator; } && !std::is_same_v<T, std::string>) {
          list(*value);
        } else {
          one(*value);
        }
      },
      option.value);
}

/// Describes an invalid number or string; "" if it is valid.
template <class T>
std::string problem_of_value(const Option& option, const std::string& name, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    const auto& choices = option.choices;
    if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return "";
    std::string text = str(name, " is '", value, "', expected");
    for (size_t i = 0; i < choices.size(); ++i) text += str(i == 0 ? " '" : " or '", choices[i], "'");
    return text;
  } else {
    return option.problem == nullptr ? "" : option.problem(name.c_str(), static_cast<double>(value));
  }
}

std::string problem_of(const Option& option, int64_t num_groups) {
  if (auto* const* values = std::get_if<PerGroup<double>*>(&option.value)) {
    const auto size = static_cast<int64_t>((*values)->values.size());
    if (size != 1 && size != num_groups)
      return str(option.name, " has ", size, " values, expected 1 or one for each of the ", num_groups, " groups");
  }
  std::string problem;
  const auto add = [&](std::string one) {
    if (problem.empty()) problem = std::move(one);
  };
  visit_option(
      option, [&](const auto& value) { add(problem_of_value(option, option.name, value)); },
      [&](const auto& values) {
        for (size_t i = 0; i < values.size(); ++i) add(problem_of_value(option, str(option.name, ".", i), values[i]));
      },
      [&](std::vector<AnySchedule>& parts) {
        for (AnySchedule& part : parts) add(problem_of(part->options(), num_groups));
      });
  return problem;
}

}  // namespace

std::string finite(const char* name, double value) {
  return check(std::isfinite(value), name, value, "a finite number");
}

std::string not_negative(const char* name, double value) {
  return check(std::isfinite(value) && value >= 0, name, value, "a finite number >= 0");
}

std::string positive(const char* name, double value) {
  return check(std::isfinite(value) && value > 0, name, value, "a finite number > 0");
}

std::string in_zero_one(const char* name, double value) {
  return value >= 0 && value < 1 ? "" : str(name, " is ", value, ", expected 0 <= ", name, " < 1");
}

std::string at_least_one(const char* name, double value) { return check(value >= 1, name, value, "at least 1"); }

std::string problem_of(const std::vector<Option>& options, int64_t num_groups) {
  for (const Option& option : options) {
    if (std::string problem = problem_of(option, num_groups); !problem.empty()) return problem;
  }
  return "";
}

void save_options(const std::vector<Option>& options, State& state) {
  for (const Option& option : options) {
    const std::string name = option.name;
    const auto set_count = [&](size_t n) { state.set("num_" + name, static_cast<int64_t>(n)); };
    visit_option(
        option, [&](const auto& value) { state.set(name, value); },
        [&](const auto& values) {
          set_count(values.size());
          for (size_t i = 0; i < values.size(); ++i) state.set(str(name, ".", i), values[i]);
        },
        [&](std::vector<AnySchedule>& parts) {
          set_count(parts.size());
          for (size_t i = 0; i < parts.size(); ++i) {
            State own;
            own.set("schedule", std::string(parts[i]->name()));
            save_options(parts[i]->options(), own);
            state.set(str(name, ".", i), std::move(own));
          }
        });
  }
}

void load_options(const std::vector<Option>& options, StateReader& reader, const std::string& path) {
  for (const Option& option : options) {
    const std::string name = path + option.name;
    const auto read_count = [&] { return reader.read<int64_t>(str(path, "num_", option.name)); };
    visit_option(
        option,
        [&]<class T>(T& value) {
          if (const T* saved = reader.read<T>(name)) value = *saved;
        },
        [&]<class T>(std::vector<T>& values) {
          const int64_t* count = read_count();
          if (count == nullptr) return;
          values.clear();
          while (static_cast<int64_t>(values.size()) < *count) {
            const T* saved = reader.read<T>(str(name, ".", values.size()));
            if (saved == nullptr) return;
            values.push_back(*saved);
          }
        },
        [&](std::vector<AnySchedule>& parts) {
          const int64_t* count = read_count();
          if (count != nullptr && *count != static_cast<int64_t>(parts.size()))
            reader.refuse(name, str(parts.size(), " schedules expected, ", *count, " in the state"));
          for (size_t i = 0; i < parts.size(); ++i) {
            const std::string own = str(name, ".", i, ".");
            const auto* saved = reader.read<std::string>(own + "schedule");
            if (saved != nullptr && *saved != parts[i]->name())
              reader.refuse(own + "schedule", str(parts[i]->name(), " expected, ", *saved, " in the state"));
            load_options(parts[i]->options(), reader, own);
          }
        });
  }
}

}}}  // namespace tandem::v0::optim
