#include <tandem/base/format.h>

#include <array>
#include <charconv>
#include <iterator>
#include <system_error>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

namespace {

std::string format(double value, int digits, std::chars_format style) {
  std::array<char, 400> text;  // the largest double has 309 digits before the point
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, style, digits);
  TANDEM_CHECK(ValueError, error == std::errc(), "format_fixed: the text of ", value, " with ", digits,
               " digits is too long (limit ", text.size(), " characters)");
  return {text.data(), end};
}

}  // namespace

std::string format_bytes(int64_t num_bytes) {
  if (num_bytes < 1024) return str(num_bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return str(format_fixed(value, 1), " ", kUnits[unit]);
}

std::string format_fixed(double value, int digits) { return format(value, digits, std::chars_format::fixed); }

std::string format_scientific(double value, int digits) { return format(value, digits, std::chars_format::scientific); }

std::string format_general(double value, int digits) { return format(value, digits, std::chars_format::general); }

std::string format_count(int64_t n, std::string_view noun) { return str(n, " ", noun, n == 1 ? "" : "s"); }

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}}  // namespace tandem::v0
