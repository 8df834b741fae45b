#include <tandem/io/safetensors_header.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include <tandem/base/error.h>

namespace tandem::inline v0::io {

namespace {

struct DTypeName {
  const char* name;
  DType dtype;
};
/// By ascending storage rank.
constexpr std::array<DTypeName, 8> kDTypeNames = {{{"BOOL", kBool},
                                                   {"U8", kUInt8},
                                                   {"F16", kFloat16},
                                                   {"BF16", kBFloat16},
                                                   {"I32", kInt32},
                                                   {"F32", kFloat32},
                                                   {"F64", kFloat64},
                                                   {"I64", kInt64}}};

/// Names that the format has and tandem has not.
constexpr std::array<const char*, 14> kForeignDTypes = {"F4",      "F6_E2M3", "F6_E3M2",     "I8",          "F8_E5M2",
                                                        "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                                                        "U16",     "U32",     "C64",         "U64"};

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

/// Reads exactly the JSON that a header consists of.  Not recursive: the depth is fixed by the schema.
class Parser {
 public:
  Parser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header header() {
    Header result;
    std::set<std::string> names;
    check(!text_.empty() && text_[0] == '{', "expected '{'");  // not even space before it
    expect('{');
    if (!accept('}')) {
      do {
        const std::string name = string();
        check(names.insert(name).second, "the name '", name, "' occurs twice");
        check(name.find('\0') == std::string::npos, "the name that begins with '", name.c_str(), "' holds a NUL");
        expect(':');
        if (name == "__metadata__") {
          metadata(result.metadata);
        } else {
          result.entries.push_back(entry(name));
          check(result.entries.size() <= kMaxTensors, "more than ", kMaxTensors, " tensors");
        }
      } while (accept(','));
      expect('}');
    }
    skip_space();
    check(position_ == text_.size(), "text follows the closing brace of the header");
    return result;
  }

 private:
  template <class... Args>
  void check(bool condition, const Args&... what) const {
    TANDEM_CHECK(IoError, condition, "load_safetensors: '", path_, "': header, byte ", position_, ": ", what...);
  }

  void skip_space() {
    while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }
  bool accept(char c) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) { check(accept(c), "expected '", c, "'"); }

  uint32_t hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = position_ < text_.size() ? text_[position_] : '\0';
      const bool digit = c >= '0' && c <= '9';
      const bool lower = c >= 'a' && c <= 'f';
      const bool upper = c >= 'A' && c <= 'F';
      check(digit || lower || upper, "\\u needs four hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(digit ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 10);
      ++position_;
    }
    return value;
  }

  uint32_t unicode_escape() {
    const uint32_t high = hex4();
    check(high < 0xdc00 || high > 0xdfff, "a low surrogate without a high one before it");
    if (high < 0xd800 || high > 0xdbff) return high;
    check(text_.substr(position_, 2) == "\\u", "a high surrogate without a low one after it");
    position_ += 2;
    const uint32_t low = hex4();
    check(low >= 0xdc00 && low <= 0xdfff, "a high surrogate without a low one after it");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  std::string string() {
    expect('"');
    std::string result;
    while (true) {
      check(position_ < text_.size(), "the header ends inside a string");
      const char c = text_[position_++];
      if (c == '"') return result;
      check(static_cast<unsigned char>(c) >= 0x20, "a control character inside a string");
      if (c != '\\') {
        result += c;
        continue;
      }
      check(position_ < text_.size(), "the header ends inside a string");
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

  int64_t number() {
    skip_space();
    const size_t start = position_;
    int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      check(!__builtin_mul_overflow(value, int64_t{10}, &value) &&
                !__builtin_add_overflow(value, int64_t{text_[position_] - '0'}, &value),
            "a number is above 2^63 - 1");
      ++position_;
    }
    check(position_ > start, "expected a number that is not negative");
    check(text_[start] != '0' || position_ == start + 1, "a number has a leading zero");
    const char next = position_ < text_.size() ? text_[position_] : '\0';
    check(next != '.' && next != 'e' && next != 'E', "expected an integer");
    return value;
  }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> result;
    expect('[');
    if (accept(']')) return result;
    do {
      result.push_back(number());
    } while (accept(','));
    expect(']');
    return result;
  }

  void metadata(std::map<std::string, std::string>& out) {
    expect('{');
    if (accept('}')) return;
    do {
      std::string key = string();
      expect(':');
      skip_space();
      check(position_ < text_.size() && text_[position_] == '"', "__metadata__: the value of '", key, "' is no string");
      check(!out.contains(key), "__metadata__: the key '", key, "' occurs twice");
      out[key] = string();
    } while (accept(','));
    expect('}');
  }

  DType dtype(const std::string& name, const std::string& text) {
    for (const DTypeName& known : kDTypeNames) {
      if (text == known.name) return known.dtype;
    }
    TANDEM_CHECK(DTypeError, std::find(kForeignDTypes.begin(), kForeignDTypes.end(), text) == kForeignDTypes.end(),
                 "load_safetensors: '", path_, "': tensor '", name, "' has element type ", text,
                 ", which tandem does not have");
    check(false, "tensor '", name, "': '", text, "' is no element type of the format");
    return kBool;
  }

  HeaderEntry entry(const std::string& name) {
    HeaderEntry result;
    result.name = name;
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    expect('{');
    do {
      const std::string field = string();
      expect(':');
      bool* seen = field == "dtype"          ? &has_dtype
                   : field == "shape"        ? &has_shape
                   : field == "data_offsets" ? &has_offsets
                                             : nullptr;
      check(seen != nullptr, "tensor '", name, "': unknown field '", field, "'");
      check(!*seen, "tensor '", name, "': the field '", field, "' occurs twice");
      *seen = true;
      if (field == "dtype") {
        result.dtype = dtype(name, string());
      } else if (field == "shape") {
        result.shape = Shape(numbers());
      } else {
        const std::vector<int64_t> offsets = numbers();
        check(offsets.size() == 2, "tensor '", name, "': data_offsets has ", offsets.size(), " numbers, expected 2");
        result.begin = offsets[0];
        result.end = offsets[1];
      }
    } while (accept(','));
    expect('}');
    check(has_dtype, "tensor '", name, "': the field 'dtype' is missing");
    check(has_shape, "tensor '", name, "': the field 'shape' is missing");
    check(has_offsets, "tensor '", name, "': the field 'data_offsets' is missing");
    return result;
  }

  const std::string& path_;
  std::string_view text_;
  size_t position_ = 0;
};

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

int storage_rank(DType dtype) {
  const auto* found =
      std::find_if(kDTypeNames.begin(), kDTypeNames.end(), [&](const DTypeName& d) { return d.dtype == dtype; });
  return static_cast<int>(found - kDTypeNames.begin());
}

std::string write_header(const Header& header) {
  std::string out = "{";
  const auto separate = [&] {
    if (out.size() > 1) out += ',';
  };
  if (!header.metadata.empty()) {
    out += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      if (!first) out += ',';
      first = false;
      append_quoted(out, key);
      out += ':';
      append_quoted(out, value);
    }
    out += '}';
  }
  for (const HeaderEntry& entry : header.entries) {
    separate();
    append_quoted(out, entry.name);
    out += str(":{\"dtype\":\"", kDTypeNames[static_cast<size_t>(storage_rank(entry.dtype))].name, "\",\"shape\":[");
    for (size_t d = 0; d < entry.shape.size(); ++d) out += str(d == 0 ? "" : ",", entry.shape[d]);
    out += str("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  return out + "}";
}

Header parse_header(const std::string& path, std::string_view text, int64_t num_data_bytes) {
  TANDEM_CHECK(IoError, is_valid_utf8(text), "load_safetensors: '", path, "': the header is no valid UTF-8");
  Header header = Parser(path, text).header();
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t position = 0;
  for (const HeaderEntry& entry : header.entries) {
    TANDEM_CHECK(IoError, entry.begin == position && entry.end >= entry.begin, "load_safetensors: '", path,
                 "': tensor '", entry.name, "' has bytes ", entry.begin, " to ", entry.end,
                 ", expected a range that begins at ", position);
    position = entry.end;
    int64_t num_bytes = size_of(entry.dtype);
    int64_t address_space = 8;  // as num_elements counts it: zeros skipped, the widest elements
    bool overflow = false;
    for (const int64_t size : entry.shape) {
      overflow = overflow || __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
      if (!overflow) num_bytes *= size;
    }
    TANDEM_CHECK(IoError, !overflow, "load_safetensors: '", path, "': the sizes ", entry.shape, " of tensor '",
                 entry.name, "' overflow");
    TANDEM_CHECK(IoError, num_bytes == entry.end - entry.begin, "load_safetensors: '", path, "': tensor '", entry.name,
                 "' of ", entry.dtype, " ", entry.shape, " needs ", num_bytes, " bytes, its range has ",
                 entry.end - entry.begin);
  }
  TANDEM_CHECK(IoError, position == num_data_bytes, "load_safetensors: '", path, "': the tensors end at byte ",
               position, " of the data, the file has ", num_data_bytes);
  return header;
}

}  // namespace tandem::inline v0::io
