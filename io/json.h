// JSON as files of this room use it: a reader that takes exactly what its caller expects.  Private to io/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace io {

/// Whether `text` is well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
bool is_valid_utf8(std::string_view text);

/// Appends `text` as a JSON string.
void append_quoted(std::string& out, std::string_view text);

/// Walks through a text token by token.  It builds no tree, so depth and memory are its caller's.  Every member throws
/// IoError with the position for what is not JSON (RFC 8259) or not what was asked for.
class JsonReader {
 public:
  /// `where` begins error texts, "byte 17: ..." follows.  Both arguments must outlive the reader.
  JsonReader(std::string_view where, std::string_view text) : where_(where), text_(text) {}

  /// The next byte that is no space, '\0' at the end; does not move past it.
  char peek();
  bool accept(char c);
  void expect(char c);
  /// Moves past `word` ("true", "null") if it comes next.
  bool accept_word(std::string_view word);
  std::string string();
  /// An integer from 0 to 2^63 - 1.
  int64_t count();
  /// An integer of 64 bits, or, where it has a fraction or an exponent, a double.
  std::variant<int64_t, double> number();
  /// Expects that only space follows.
  void expect_end();

  size_t position() const { return position_; }
  template <class... Args>
  void check(bool condition, const Args&... what) const {
    TANDEM_CHECK(IoError, condition, where_, "byte ", position_, ": ", what...);
  }

 private:
  char at(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  size_t skip_digits();
  uint32_t hex4();
  uint32_t unicode_escape();

  std::string_view where_;
  std::string_view text_;
  size_t position_ = 0;
};

}}}  // namespace tandem::v0::io
