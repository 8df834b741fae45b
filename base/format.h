// Numbers as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// "24.0 MiB", "512 B".
TANDEM_API std::string format_bytes(int64_t num_bytes);

/// `value` with `digits` decimal places: "0.1250".
TANDEM_API std::string format_fixed(double value, int digits);

/// `n` with the noun, which gets an s unless n is 1: "1 step", "2 steps".
TANDEM_API std::string format_count(int64_t n, std::string_view noun);

}}  // namespace tandem::v0
