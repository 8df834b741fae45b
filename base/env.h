// Environment variables, parsed strictly: an invalid value is an error that quotes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// The variable's value; nullopt if unset or empty.
TANDEM_API std::optional<std::string> env_string(const char* name);

/// The variable as a decimal integer; nullopt if unset or empty. Throws ValueError if it is anything else.
TANDEM_API std::optional<int64_t> env_int(const char* name);

}}  // namespace tandem::v0
