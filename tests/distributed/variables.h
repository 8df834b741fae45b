// In-memory environments of ranks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <tandem/distributed/launch/rank_environment.h>

namespace tandem::testing_support {

using Variables = std::map<std::string, std::string>;

inline distributed::Lookup lookup_in(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  };
}

inline Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

}  // namespace tandem::testing_support
