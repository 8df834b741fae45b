#include <tandem/io/json.h>

#include <charconv>
#include <cstdio>
#include <system_error>

namespace tandem { inline namespace v0 { namespace io {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    // The second byte's range is narrower after some leads: that excludes overlong forms, surrogates, codes above
    // 10ffff.
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next < low || next > high) return false;
      low = 0x80;
      high = 0xbf;
    }
    i += length;
  }
  return true;
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof escape, "\\u%04x", c);
          out += escape;
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

char JsonReader::peek() {
  while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
    ++position_;
  return at(position_);
}

bool JsonReader::accept(char c) {
  if (peek() != c || position_ == text_.size()) return false;
  ++position_;
  return true;
}

void JsonReader::expect(char c) { check(accept(c), "expected '", c, "'"); }

bool JsonReader::accept_word(std::string_view word) {
  peek();
  if (text_.substr(position_, word.size()) != word) return false;
  position_ += word.size();
  return true;
}

void JsonReader::expect_end() {
  peek();
  check(position_ == text_.size(), "text follows the closing brace");
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = at(position_);
    const bool lower = c >= 'a' && c <= 'f';
    const bool upper = c >= 'A' && c <= 'F';
    check(is_digit(c) || lower || upper, "\\u needs four hexadecimal digits");
    value = value << 4 | static_cast<uint32_t>(is_digit(c) ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 10);
    ++position_;
  }
  return value;
}

uint32_t JsonReader::unicode_escape() {
  const uint32_t high = hex4();
  check(high < 0xdc00 || high > 0xdfff, "a low surrogate without a high one before it");
  if (high < 0xd800 || high > 0xdbff) return high;
  check(text_.substr(position_, 2) == "\\u", "a high surrogate without a low one after it");
  position_ += 2;
  const uint32_t low = hex4();
  check(low >= 0xdc00 && low <= 0xdfff, "a high surrogate without a low one after it");
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

std::string JsonReader::string() {
  expect('"');
  std::string result;
  while (true) {
    check(position_ < text_.size(), "the text ends inside a string");
    const char c = text_[position_++];
    if (c == '"') return result;
    check(static_cast<unsigned char>(c) >= 0x20, "a control character inside a string");
    if (c != '\\') {
      result += c;
      continue;
    }
    check(position_ < text_.size(), "the text ends inside a string");
    const char escape = text_[position_++];
    switch (escape) {
      case '"':
      case '\\':
      case '/': result += escape; break;
      case 'b': result += '\b'; break;
      case 'f': result += '\f'; break;
      case 'n': result += '\n'; break;
      case 'r': result += '\r'; break;
      case 't': result += '\t'; break;
      case 'u': append_utf8(result, unicode_escape()); break;
      default: check(false, "'\\", escape, "' is no escape of JSON");
    }
  }
}

size_t JsonReader::skip_digits() {
  const size_t start = position_;
  while (is_digit(at(position_))) ++position_;
  return position_ - start;
}

int64_t JsonReader::count() {
  check(is_digit(peek()), "expected a number that is not negative");
  const auto value = number();
  const auto* integer = std::get_if<int64_t>(&value);
  check(integer != nullptr, "expected an integer");
  return *integer;
}

std::variant<int64_t, double> JsonReader::number() {
  peek();
  const size_t start = position_;
  if (at(position_) == '-') ++position_;
  const size_t first_digit = position_;
  const size_t num_digits = skip_digits();
  check(num_digits > 0, "expected a number");
  check(num_digits == 1 || text_[first_digit] != '0', "a number has a leading zero");
  bool is_integer = true;
  if (at(position_) == '.') {
    is_integer = false;
    ++position_;
    check(skip_digits() > 0, "a digit is missing after the point");
  }
  if (at(position_) == 'e' || at(position_) == 'E') {
    is_integer = false;
    ++position_;
    if (at(position_) == '+' || at(position_) == '-') ++position_;
    check(skip_digits() > 0, "a digit is missing in the exponent");
  }
  const char* begin = text_.data() + start;
  const char* end = text_.data() + position_;
  if (is_integer) {
    int64_t value = 0;
    check(std::from_chars(begin, end, value).ec == std::errc(), "a number is outside the range of 64 bits");
    return value;
  }
  double value = 0;
  check(std::from_chars(begin, end, value).ec == std::errc(), "a number is outside the range of double");
  return value;
}

}}}  // namespace tandem::v0::io
