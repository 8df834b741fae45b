#include <tandem/text/utf8.h>

#include <bit>
#include <cstdint>

namespace tandem { inline namespace v0 { namespace text {

CodePoint decode_utf8(std::string_view text) {
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // by number of bytes
  if (text.empty()) return {};
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1};
  const auto length = static_cast<size_t>(std::countl_one(first));  // 1: a continuation byte
  if (length < 2 || length > 4 || text.size() < length) return {};
  char32_t value = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte >> 6 != 2) return {};
    value = value << 6 | (byte & 0x3fu);
  }
  const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
  return value < kSmallest[length] || is_surrogate || value > 0x10ffff ? CodePoint() : CodePoint{value, length};
}

}}}  // namespace tandem::v0::text
