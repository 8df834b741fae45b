#include <tandem/io/json.h>

#include <charconv>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem { inline namespace v0 { namespace io {

namespace {

using nlohmann::json;

/// Iterates over bytes. The position is stored outside, because the parser has copies of the iterator.
class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit ByteIterator(const char*& position) : position_(&position) {}
  reference operator*() const { return **position_; }
  ByteIterator& operator++() {
    ++*position_;
    return *this;
  }
  bool operator==(const ByteIterator& other) const { return *position_ == *other.position_; }

 private:
  const char** position_;
};

}  // namespace

bool is_valid_utf8(std::string_view text) {
  try {
    json_quoted(text);
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

std::string json_quoted(std::string_view text) { return json(text).dump(); }

/// The interface that nlohmann-json's SAX parser calls.
class JsonHandler::Sax {
 public:
  explicit Sax(JsonHandler& handler) : handler_(handler) {}

  bool null() { return value(nullptr); }
  bool boolean(bool flag) { return value(flag); }
  bool number_integer(int64_t number) { return value(number); }
  bool number_unsigned(uint64_t number) {
    check_integer(number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    return value(number);
  }
  bool number_float(double, std::string digits) {
    // The parser uses strtod, for which it writes the first byte of the locale's decimal point into the text.
    if (const size_t point = digits.find_first_not_of("-+0123456789eE"); point != std::string::npos)
      digits[point] = '.';
    // The parser calls this function for an integer outside 64 bits too.
    check_integer(digits.find_first_not_of("-0123456789") != std::string::npos);
    double number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    // A number that is too small is rounded to 0, without an error.
    check_double(number != 0 ||
                 digits.substr(0, digits.find_first_of("eE")).find_first_of("123456789") == std::string::npos);
    return value(number);
  }
  bool string(std::string& text) { return value(std::move(text)); }
  bool binary(json::binary_t&) { return false; }  // only in binary formats
  bool key(std::string& name) {
    handler_.key(std::move(name));
    return true;
  }
  bool start_object(size_t) { return begin(JsonObject()); }
  bool start_array(size_t) { return begin(JsonArray()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }

  bool parse_error(size_t position, const std::string&, const json::exception& error) {
    constexpr int kNumberOverflow = 406;
    check_double(error.id != kNumberOverflow);
    handler_.check(!has_begun_ || handler_.depth_ > 0, "text follows the closing brace");
    // Not the library's reason, which differs between its versions. At the end it counts one byte more than there are.
    handler_.check(position <= handler_.text_.size(), "the JSON ends too early");
    handler_.check(false, "not valid JSON");
    return false;
  }

 private:
  void check_integer(bool is_in_range) const {
    handler_.check(is_in_range, "an integer is outside the range of 64 bits");
  }
  void check_double(bool is_in_range) const { handler_.check(is_in_range, "a number is outside the range of double"); }
  bool value(JsonValue value) {
    if (!has_begun_) handler_.get<JsonObject>(value);
    handler_.value(std::move(value));
    return true;
  }
  bool begin(JsonValue container) {
    value(std::move(container));
    has_begun_ = true;
    ++handler_.depth_;
    return true;
  }
  bool end() {
    --handler_.depth_;
    handler_.end();
    return true;
  }

  JsonHandler& handler_;
  bool has_begun_ = false;
};

void JsonHandler::parse() {
  // The parser skips a byte order mark and takes a NUL for the end of the text.
  check(!text_.starts_with("\xef\xbb\xbf"), "the text begins with a byte order mark");
  const size_t nul = text_.find('\0');
  TANDEM_CHECK(IoError, nul == std::string_view::npos, where_, "byte ", nul, ": a NUL is not JSON");
  Sax sax(*this);
  const char* end = text_.data() + text_.size();
  json::sax_parse(ByteIterator(position_), ByteIterator(end), &sax);
}

}}}  // namespace tandem::v0::io
