// CRC-32C (Castagnoli; RFC 3720), the checksum of event files. Private to io/.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem { inline namespace v0 { namespace io {

constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reversed
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}();

/// The CRC-32C of `bytes`.
constexpr uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char c : bytes) value = value >> 8 ^ kCrc32cTable[(value ^ static_cast<uint8_t>(c)) & 0xff];
  return ~value;
}
static_assert(crc32c("123456789") == 0xe3069283);  // the published check value

/// The CRC-32C rotated right by 15 bits plus a constant, as event files store it. A CRC of bytes that contain their
/// own CRC would be weak.
constexpr uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t value = crc32c(bytes);
  return (value >> 15 | value << 17) + 0xa282ead8;
}

}}}  // namespace tandem::v0::io
