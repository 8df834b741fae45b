#include <tandem/io/safetensors_header.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/io/json.h>

namespace tandem { inline namespace v0 { namespace io {

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

/// Element types that the format has and tandem has not.
struct ForeignDType {
  const char* name;
  int bits;
};
constexpr std::array<ForeignDType, 14> kForeignDTypes = {{{"F4", 4},
                                                          {"F6_E2M3", 6},
                                                          {"F6_E3M2", 6},
                                                          {"I8", 8},
                                                          {"F8_E5M2", 8},
                                                          {"F8_E4M3", 8},
                                                          {"F8_E8M0", 8},
                                                          {"F8_E4M3FNUZ", 8},
                                                          {"F8_E5M2FNUZ", 8},
                                                          {"I16", 16},
                                                          {"U16", 16},
                                                          {"U32", 32},
                                                          {"C64", 64},
                                                          {"U64", 64}}};

constexpr int kBitsOfByte = 8;

/// An entry as it stands in the text: its element type may be one that tandem has not.
struct ParsedEntry {
  HeaderEntry entry;
  int bits = 0;  ///< per element
  const char* foreign = nullptr;
};

/// Reads exactly the JSON that a header consists of.  Not recursive: the depth is fixed by the schema.
class Parser {
 public:
  Parser(const std::string& where, std::string_view text) : json_(where, text) {}

  std::vector<ParsedEntry> header(std::map<std::string, std::string>& metadata_out) {
    std::vector<ParsedEntry> entries;
    std::unordered_set<std::string> names;
    json_.expect('{');
    if (!json_.accept('}')) {
      do {
        const std::string name = json_.string();
        json_.check(names.insert(name).second, "the name '", name, "' occurs twice");
        json_.check(name.find('\0') == std::string::npos, "the name that begins with '", name.c_str(), "' holds a NUL");
        json_.expect(':');
        if (name == "__metadata__") {
          metadata(metadata_out);
        } else {
          entries.push_back(entry(name));
          json_.check(entries.size() <= kMaxTensors, "more than ", kMaxTensors, " tensors");
        }
      } while (json_.accept(','));
      json_.expect('}');
    }
    json_.expect_end();
    return entries;
  }

 private:
  /// At most `limit` numbers.
  Shape numbers(size_t limit, const std::string& name, const char* field) {
    Shape result;
    json_.expect('[');
    if (json_.accept(']')) return result;
    do {
      json_.check(result.size() < limit, "tensor '", name, "': ", field, " has more than ", limit, " numbers");
      result.push_back(json_.count());
    } while (json_.accept(','));
    json_.expect(']');
    return result;
  }

  void metadata(std::map<std::string, std::string>& out) {
    json_.expect('{');
    if (json_.accept('}')) return;
    do {
      std::string key = json_.string();
      json_.expect(':');
      json_.check(json_.peek() == '"', "__metadata__: the value of '", key, "' is no string");
      json_.check(!out.contains(key), "__metadata__: the key '", key, "' occurs twice");
      out[key] = json_.string();
    } while (json_.accept(','));
    json_.expect('}');
  }

  void dtype(ParsedEntry& out, const std::string& text) {
    for (const DTypeName& known : kDTypeNames) {
      if (text != known.name) continue;
      out.entry.dtype = known.dtype;
      out.bits = static_cast<int>(size_of(known.dtype)) * kBitsOfByte;
      return;
    }
    for (const ForeignDType& foreign : kForeignDTypes) {
      if (text != foreign.name) continue;
      out.foreign = foreign.name;
      out.bits = foreign.bits;
      return;
    }
    json_.check(false, "tensor '", out.entry.name, "': '", text, "' is no element type of the format");
  }

  ParsedEntry entry(const std::string& name) {
    ParsedEntry result;
    result.entry.name = name;
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    json_.expect('{');
    do {
      const std::string field = json_.string();
      json_.expect(':');
      bool* seen = field == "dtype"          ? &has_dtype
                   : field == "shape"        ? &has_shape
                   : field == "data_offsets" ? &has_offsets
                                             : nullptr;
      json_.check(seen != nullptr, "tensor '", name, "': unknown field '", field, "'");
      json_.check(!*seen, "tensor '", name, "': the field '", field, "' occurs twice");
      *seen = true;
      if (field == "dtype") {
        dtype(result, json_.string());
      } else if (field == "shape") {
        result.entry.shape = numbers(kMaxDims, name, "shape");
      } else {
        const Shape offsets = numbers(2, name, "data_offsets");
        json_.check(offsets.size() == 2, "tensor '", name, "': data_offsets has ", offsets.size(),
                    " numbers, expected 2");
        result.entry.begin = offsets[0];
        result.entry.end = offsets[1];
      }
    } while (json_.accept(','));
    json_.expect('}');
    json_.check(has_dtype, "tensor '", name, "': the field 'dtype' is missing");
    json_.check(has_shape, "tensor '", name, "': the field 'shape' is missing");
    json_.check(has_offsets, "tensor '", name, "': the field 'data_offsets' is missing");
    return result;
  }

  JsonReader json_;
};

/// The tensor's own rules: its sizes multiply without overflow, fill whole bytes, and as many as its range has.
void check_entry(const std::string& path, const ParsedEntry& parsed) {
  const HeaderEntry& entry = parsed.entry;
  // As num_elements counts it: zeros skipped, the widest elements; so that no part of tandem can overflow either.
  int64_t address_space = sizeof(int64_t) * kBitsOfByte;
  int64_t num_bits = parsed.bits;
  bool overflow = false;
  for (const int64_t size : entry.shape) {
    overflow = overflow || __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
    if (!overflow) num_bits *= size;
  }
  const char* dtype = parsed.foreign != nullptr ? parsed.foreign : to_string(entry.dtype);
  TANDEM_CHECK(IoError, !overflow, "load_safetensors: '", path, "': the sizes ", entry.shape, " of tensor '",
               entry.name, "' overflow");
  TANDEM_CHECK(IoError, num_bits % kBitsOfByte == 0, "load_safetensors: '", path, "': tensor '", entry.name, "' of ",
               dtype, " ", entry.shape, " has ", num_bits, " bits, which fill no whole bytes");
  TANDEM_CHECK(IoError, num_bits / kBitsOfByte == entry.end - entry.begin, "load_safetensors: '", path, "': tensor '",
               entry.name, "' of ", dtype, " ", entry.shape, " needs ", num_bits / kBitsOfByte,
               " bytes, its range has ", entry.end - entry.begin);
}

}  // namespace

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
  Header header;
  const std::string where = str("load_safetensors: '", path, "': header, ");
  std::vector<ParsedEntry> entries = Parser(where, text).header(header.metadata);
  std::stable_sort(entries.begin(), entries.end(), [](const ParsedEntry& a, const ParsedEntry& b) {
    return std::pair(a.entry.begin, a.entry.end) < std::pair(b.entry.begin, b.entry.end);
  });
  int64_t position = 0;
  for (const ParsedEntry& parsed : entries) {
    const HeaderEntry& entry = parsed.entry;
    TANDEM_CHECK(IoError, entry.begin == position, "load_safetensors: '", path, "': tensor '", entry.name,
                 "' has bytes ", entry.begin, " to ", entry.end, ", expected a range that begins at ", position);
    TANDEM_CHECK(IoError, entry.end >= entry.begin, "load_safetensors: '", path, "': tensor '", entry.name,
                 "' has bytes ", entry.begin, " to ", entry.end, ", which end before they begin");
    position = entry.end;
    check_entry(path, parsed);
  }
  TANDEM_CHECK(IoError, position == num_data_bytes, "load_safetensors: '", path, "': the tensors end at byte ",
               position, " of the data, the file has ", num_data_bytes);
  // Last, so that of a damaged file the damage is told.
  for (const ParsedEntry& parsed : entries) {
    TANDEM_CHECK(DTypeError, parsed.foreign == nullptr, "load_safetensors: '", path, "': tensor '", parsed.entry.name,
                 "' has element type ", parsed.foreign, ", which tandem does not have");
  }
  header.entries.reserve(entries.size());
  for (ParsedEntry& parsed : entries) header.entries.push_back(std::move(parsed.entry));
  return header;
}

}}}  // namespace tandem::v0::io
