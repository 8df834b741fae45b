// Numbers as text, and text as numbers, in the same form under every locale of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// "24.0 MiB", "512 B".
TANDEM_API std::string format_bytes(int64_t num_bytes);

/// `value` with `digits` decimal places, as by printf's %.{digits}f: "0.1250".
TANDEM_API std::string format_fixed(double value, int digits);
/// As by printf's %.{digits}e: "1.250e-01".
TANDEM_API std::string format_scientific(double value, int digits);
/// `digits` significant digits, as by printf's %.{digits}g: "0.125", "1e+20".
TANDEM_API std::string format_general(double value, int digits);

/// `n` with the noun, which gets an s unless n is 1: "1 step", "2 steps".
TANDEM_API std::string format_count(int64_t n, std::string_view noun);

/// The decimal integer, for example "-12"; nullopt for any other text.
TANDEM_API std::optional<int64_t> parse_integer(std::string_view text);

}}  // namespace tandem::v0
