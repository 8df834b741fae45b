// Parsing of JSON (RFC 8259) with nlohmann-json's SAX parser into handlers for one schema each. Private to io/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace io {

/// Whether `text` is well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
bool is_valid_utf8(std::string_view text);

/// `text`, which is valid UTF-8, as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

/// The beginning of an object, and of an array.
struct JsonObject {};
struct JsonArray {};
/// An integer with a minus sign ("-0" too) is an int64_t; any other integer is a uint64_t of at most 2^63 - 1.
using JsonValue = std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string, JsonObject, JsonArray>;

/// Receives the tokens of one text, whose outermost value is an object. A derived class throws IoError, by check() and
/// get(), for tokens outside its schema. The parser builds no tree and does not recurse, so the derived class alone
/// determines the memory and limits the depth.
class JsonHandler {
 public:
  /// Error texts are "<where>byte 17: <reason>" after 17 bytes have been read. These include the byte after a number.
  JsonHandler(std::string_view where, std::string_view text) : where_(where), text_(text), position_(text.data()) {}
  virtual ~JsonHandler() = default;

  /// Calls the virtual functions in the order of the text. Call it once. Throws IoError if the text is not one JSON
  /// object in UTF-8 without a byte order mark, or has an integer outside int64_t or a number outside double.
  void parse();

 protected:
  /// The key of the next value, in the innermost object.
  virtual void key(std::string name) = 0;
  /// A value that is complete, or the beginning of an object or array.
  virtual void value(JsonValue value) = 0;
  /// The end of an object or array.
  virtual void end() = 0;

  /// The objects and arrays around the token.
  int depth() const { return depth_; }
  size_t position() const { return static_cast<size_t>(position_ - text_.data()); }
  std::string_view text() const { return text_; }

  template <class... Args>
  void check(bool condition, const Args&... what) const {
    TANDEM_CHECK(IoError, condition, where_, "byte ", position(), ": ", what...);
  }
  /// `value` as a T.  Throws IoError "byte 17: <what>expected a string, got null" for another type.
  template <class T, class... Args>
  T& get(JsonValue& value, const Args&... what) const {
    T* result = std::get_if<T>(&value);
    check(result != nullptr, what..., "expected ", kTypeNames[JsonValue(T()).index()], ", got ",
          kTypeNames[value.index()]);
    return *result;
  }

 private:
  class Sax;
  static constexpr const char* kTypeNames[] = {"null",
                                               "a boolean",
                                               "an integer that is not negative",
                                               "a negative integer",
                                               "a floating-point number",
                                               "a string",
                                               "an object",
                                               "an array"};

  std::string_view where_;
  std::string_view text_;
  const char* position_;
  int depth_ = 0;
};

}}}  // namespace tandem::v0::io
