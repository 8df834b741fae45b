#include <tandem/base/env.h>

#include <charconv>
#include <cstdlib>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int64_t> env_int(const char* name) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [parsed, status] = std::from_chars(text->data(), end, value);
  TANDEM_CHECK(ValueError, status == std::errc() && parsed == end, name, ": '", *text, "' is not an integer");
  return value;
}

}}  // namespace tandem::v0
