// Decoding of UTF-8. Private to text/.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem { inline namespace v0 { namespace text {

/// A code point and the number of its bytes.
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;  ///< 0: the bytes are not well-formed
};

/// The code point at the beginning of `text` by RFC 3629: no overlong forms, no surrogates, at most U+10FFFF.
CodePoint decode_utf8(std::string_view text);

}}}  // namespace tandem::v0::text
