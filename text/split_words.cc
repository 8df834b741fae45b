#include <tandem/text/split_words.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <tandem/text/unicode_table.h>
#include <tandem/text/utf8.h>

namespace tandem { inline namespace v0 { namespace text {

namespace {

enum class Kind : uint8_t { kLetter, kNumber, kSpace, kOther };

bool contains(std::span<const CodePointRange> ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

/// Unicode's White_Space.
bool is_space(char32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

Kind look_up(char32_t code) {
  if (is_space(code)) return Kind::kSpace;
  if (contains(kLetterRanges, code)) return Kind::kLetter;
  return contains(kNumberRanges, code) ? Kind::kNumber : Kind::kOther;
}

struct Character {
  Kind kind;
  size_t end;
};

/// The character that begins at `begin` < text.size().
Character character_at(std::string_view text, size_t begin) {
  static const std::array<Kind, 128> kAscii = [] {
    std::array<Kind, 128> kinds;
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = look_up(static_cast<char32_t>(i));
    return kinds;
  }();
  const auto byte = static_cast<uint8_t>(text[begin]);
  if (byte < kAscii.size()) return {kAscii[byte], begin + 1};
  const CodePoint point = decode_utf8(text.substr(begin));
  return {point.length == 0 ? Kind::kOther : look_up(point.value), begin + std::max<size_t>(point.length, 1)};
}

/// The length of an English contraction such as 's or 'll at the beginning of the text, else 0.
size_t contraction(std::string_view text) {
  for (const std::string_view form : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(form)) return form.size();
  }
  return 0;
}

}  // namespace

size_t end_of_word(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t length = contraction(text.substr(begin));
    if (length > 0) return begin + length;
  }
  Character now = character_at(text, begin);
  if (text[begin] == ' ' && now.end < text.size()) {  // one space belongs to the word behind it
    const Character next = character_at(text, now.end);
    if (next.kind != Kind::kSpace) now = next;
  }
  const Kind kind = now.kind;
  size_t last = begin;  // where the last character of this kind begins
  while (now.end < text.size()) {
    const Character next = character_at(text, now.end);
    if (next.kind != kind) {
      // The last of several spaces belongs to the following word.
      return kind == Kind::kSpace && last > begin ? last : now.end;
    }
    last = now.end;
    now = next;
  }
  return text.size();
}

}}}  // namespace tandem::v0::text
