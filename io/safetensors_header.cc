#include <tandem/io/safetensors_header.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
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
constexpr std::array<DTypeName, 10> kDTypeNames = {{{"BOOL", kBool},
                                                    {"U8", kUInt8},
                                                    {"I8", kInt8},
                                                    {"I16", kInt16},
                                                    {"F16", kFloat16},
                                                    {"BF16", kBFloat16},
                                                    {"I32", kInt32},
                                                    {"F32", kFloat32},
                                                    {"F64", kFloat64},
                                                    {"I64", kInt64}}};

/// Dtypes of the format that tandem does not support.
struct UnsupportedDType {
  const char* name;
  int bits;
};
constexpr std::array<UnsupportedDType, 12> kUnsupportedDTypes = {{{"F4", 4},
                                                                  {"F6_E2M3", 6},
                                                                  {"F6_E3M2", 6},
                                                                  {"F8_E5M2", 8},
                                                                  {"F8_E4M3", 8},
                                                                  {"F8_E8M0", 8},
                                                                  {"F8_E4M3FNUZ", 8},
                                                                  {"F8_E5M2FNUZ", 8},
                                                                  {"U16", 16},
                                                                  {"U32", 32},
                                                                  {"C64", 64},
                                                                  {"U64", 64}}};

constexpr int kBitsPerByte = 8;
constexpr const char* kMetadataName = "__metadata__";

/// An entry whose dtype may be unsupported.
struct ParsedEntry {
  HeaderEntry entry;
  int bits = 0;                       ///< per element
  const char* unsupported = nullptr;  ///< the dtype's name if tandem does not support it
};

/// Accepts the JSON of a header: tensors by name, each an object of three fields, and the metadata.
class HeaderHandler : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;

  std::vector<ParsedEntry> entries;
  std::map<std::string, std::string> metadata;

 private:
  enum Field : size_t { kDType, kShape, kDataOffsets };
  static constexpr std::array<const char*, 3> kFields = {"dtype", "shape", "data_offsets"};

  void key(std::string name) override {
    if (depth() == 1) {
      check(names_.insert(name).second, "the name '", name, "' occurs twice");
      check(name.find('\0') == std::string::npos, "the name that begins with '", name.c_str(), "' contains a NUL");
      name_ = std::move(name);
    } else if (name_ == kMetadataName) {
      check(!metadata.contains(name), kMetadataName, ": the key '", name, "' occurs twice");
      metadata_key_ = std::move(name);
    } else {
      const auto field = static_cast<size_t>(std::find(kFields.begin(), kFields.end(), name) - kFields.begin());
      check(field < kFields.size(), "tensor '", name_, "': unknown field '", name, "'");
      check(!has_field_[field], "tensor '", name_, "': the field '", name, "' occurs twice");
      has_field_[field] = true;
      field_ = static_cast<Field>(field);
    }
  }

  void value(JsonValue value) override {
    if (depth() == 0) return;
    if (depth() == 1) {
      get<JsonObject>(value, "'", name_, "': ");
      if (name_ == kMetadataName) return;
      check(entries.size() < kMaxTensors, "more than ", kMaxTensors, " tensors");
      entries.emplace_back().entry.name = name_;
      has_field_ = {};
    } else if (name_ == kMetadataName) {
      metadata[metadata_key_] = std::move(get<std::string>(value, kMetadataName, ": '", metadata_key_, "': "));
    } else if (depth() == 3) {
      Shape& numbers = field_ == kShape ? entry().shape : offsets_;
      const size_t limit = field_ == kShape ? kMaxDims : 2;
      check(numbers.size() < limit, "tensor '", name_, "': ", kFields[field_], " has more than ", limit, " numbers");
      numbers.push_back(static_cast<int64_t>(get<uint64_t>(value, "tensor '", name_, "': ", kFields[field_], ": ")));
    } else if (field_ == kDType) {
      dtype(get<std::string>(value, "tensor '", name_, "': dtype: "));
    } else {
      get<JsonArray>(value, "tensor '", name_, "': ", kFields[field_], ": ");
      offsets_.clear();
    }
  }

  void end() override {
    if (name_ == kMetadataName) return;
    if (depth() == 1) {
      for (size_t field = 0; field < kFields.size(); ++field)
        check(has_field_[field], "tensor '", name_, "': the field '", kFields[field], "' is missing");
    } else if (depth() == 2 && field_ == kDataOffsets) {
      check(offsets_.size() == 2, "tensor '", name_, "': data_offsets has ", offsets_.size(), " numbers, expected 2");
      entry().begin = offsets_[0];
      entry().end = offsets_[1];
    }
  }

  void dtype(const std::string& name) {
    ParsedEntry& parsed = entries.back();
    for (const DTypeName& known : kDTypeNames) {
      if (name != known.name) continue;
      parsed.entry.dtype = known.dtype;
      parsed.bits = static_cast<int>(size_of(known.dtype)) * kBitsPerByte;
      return;
    }
    for (const UnsupportedDType& known : kUnsupportedDTypes) {
      if (name != known.name) continue;
      parsed.unsupported = known.name;
      parsed.bits = known.bits;
      return;
    }
    check(false, "tensor '", name_, "': the format has no dtype '", name, "'");
  }

  HeaderEntry& entry() { return entries.back().entry; }

  std::unordered_set<std::string> names_;
  std::string name_;  ///< of the tensor, or kMetadataName
  std::string metadata_key_;
  std::array<bool, 3> has_field_ = {};
  Field field_ = kDType;
  Shape offsets_;
};

/// Checks that the sizes multiply without overflow, that the elements fill whole bytes, and that their range has as
/// many.
void check_entry(const std::string& path, const ParsedEntry& parsed) {
  const HeaderEntry& entry = parsed.entry;
  // Computed as by num_elements (sizes of 0 skipped, 8 bytes per element), so that it cannot overflow later either.
  int64_t address_space = sizeof(int64_t) * kBitsPerByte;
  int64_t num_bits = parsed.bits;
  bool overflow = false;
  for (const int64_t size : entry.shape) {
    overflow = overflow || __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
    if (!overflow) num_bits *= size;
  }
  const char* dtype = parsed.unsupported != nullptr ? parsed.unsupported : to_string(entry.dtype);
  TANDEM_CHECK(IoError, !overflow, "load_safetensors: '", path, "': the number of elements of tensor '", entry.name,
               "' of shape ", entry.shape, " overflows");
  TANDEM_CHECK(IoError, num_bits % kBitsPerByte == 0, "load_safetensors: '", path, "': tensor '", entry.name, "' of ",
               dtype, " ", entry.shape, " has ", num_bits, " bits, which is not a whole number of bytes");
  TANDEM_CHECK(IoError, num_bits / kBitsPerByte == entry.end - entry.begin, "load_safetensors: '", path, "': tensor '",
               entry.name, "' of ", dtype, " ", entry.shape, " needs ", num_bits / kBitsPerByte,
               " bytes, its range has ", entry.end - entry.begin);
}

}  // namespace

int storage_rank(DType dtype) {
  const auto* found =
      std::find_if(kDTypeNames.begin(), kDTypeNames.end(), [&](const DTypeName& d) { return d.dtype == dtype; });
  return static_cast<int>(found - kDTypeNames.begin());
}

std::string write_header(const Header& header) {
  using Json = nlohmann::ordered_json;
  // A vector of pairs: emplace_back does not search for the key, as operator[] would.
  Json::object_t object;
  if (!header.metadata.empty()) object.emplace_back(kMetadataName, header.metadata);
  for (const HeaderEntry& entry : header.entries) {
    object.emplace_back(entry.name,
                        Json::object_t{{"dtype", kDTypeNames[static_cast<size_t>(storage_rank(entry.dtype))].name},
                                       {"shape", Json::array_t(entry.shape.begin(), entry.shape.end())},
                                       {"data_offsets", {entry.begin, entry.end}}});
  }
  return Json(std::move(object)).dump();
}

Header parse_header(const std::string& path, std::string_view text, int64_t num_data_bytes) {
  const std::string where = str("load_safetensors: '", path, "': header, ");
  HeaderHandler handler(where, text);
  handler.parse();
  std::vector<ParsedEntry> entries = std::move(handler.entries);
  std::stable_sort(entries.begin(), entries.end(), [](const ParsedEntry& a, const ParsedEntry& b) {
    return std::pair(a.entry.begin, a.entry.end) < std::pair(b.entry.begin, b.entry.end);
  });
  int64_t position = 0;
  for (const ParsedEntry& parsed : entries) {
    const HeaderEntry& entry = parsed.entry;
    TANDEM_CHECK(IoError, entry.begin == position, "load_safetensors: '", path, "': tensor '", entry.name,
                 "' has bytes ", entry.begin, " to ", entry.end, ", expected a range that begins at ", position);
    TANDEM_CHECK(IoError, entry.end >= entry.begin, "load_safetensors: '", path, "': tensor '", entry.name,
                 "' has bytes ", entry.begin, " to ", entry.end, ", whose end is before its begin");
    position = entry.end;
    check_entry(path, parsed);
  }
  TANDEM_CHECK(IoError, position == num_data_bytes, "load_safetensors: '", path, "': the tensors end at byte ",
               position, " of the data, the file has ", num_data_bytes);
  Header header;
  header.metadata = std::move(handler.metadata);
  header.entries.reserve(entries.size());
  for (ParsedEntry& parsed : entries) {
    if (parsed.unsupported == nullptr) {
      header.entries.push_back(std::move(parsed.entry));
    } else {
      header.unsupported.emplace_back(std::move(parsed.entry.name), parsed.unsupported);
    }
  }
  return header;
}

}}}  // namespace tandem::v0::io
