#include <tandem/base/format.h>

#include <cstdio>
#include <iterator>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

std::string format_bytes(int64_t num_bytes) {
  if (num_bytes < 1024) return str(num_bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string format_fixed(double value, int digits) {
  char text[400];  // the largest double has 309 digits before the point
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string format_count(int64_t n, std::string_view noun) { return str(n, " ", noun, n == 1 ? "" : "s"); }

}}  // namespace tandem::v0
