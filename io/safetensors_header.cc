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

constexpr const char* kMetadataName = "__metadata__";

/// An entry and, if tandem does not support its dtype, the name of the dtype.
struct ParsedEntry {
  HeaderEntry entry;
  std::string unsupported = {};
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
      if (name_ == kMetadataName && std::holds_alternative<std::nullptr_t>(value)) return;
      get<JsonObject>(value, "'", name_, "': ");
      if (name_ == kMetadataName) return;
      check(entries.size() < kMaxTensors, "more than ", kMaxTensors, " tensors");
      entries.emplace_back().entry.name = name_;
      has_field_ = {};
    } else if (name_ == kMetadataName) {
      metadata[metadata_key_] = std::move(get<std::string>(value, kMetadataName, ": '", metadata_key_, "': "));
    } else if (depth() == 3) {
      Shape& numbers = field_ == kShape ? entry().shape : offsets_;
      check(field_ == kShape || numbers.size() < 2, "tensor '", name_, "': data_offsets has more than 2 numbers");
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
    const auto* known =
        std::find_if(kDTypeNames.begin(), kDTypeNames.end(), [&](const DTypeName& d) { return name == d.name; });
    check(!name.empty(), "tensor '", name_, "': the dtype is empty");
    if (known != kDTypeNames.end()) entry().dtype = known->dtype;
    if (known == kDTypeNames.end()) entries.back().unsupported = name;
  }

  HeaderEntry& entry() { return entries.back().entry; }

  std::unordered_set<std::string> names_;
  std::string name_;  ///< of the tensor, or kMetadataName
  std::string metadata_key_;
  std::array<bool, 3> has_field_ = {};
  Field field_ = kDType;
  Shape offsets_;
};

/// Checks that the sizes multiply without overflow and that the range has the bytes of the elements.
void check_entry(const std::string& path, const HeaderEntry& entry) {
  // As by num_elements (sizes of 0 skipped, 8 bytes per element), so that it cannot overflow later either.
  int64_t address_space = sizeof(int64_t);
  int64_t num_bytes = size_of(entry.dtype);
  for (const int64_t size : entry.shape) {
    const bool overflow = __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
    TANDEM_CHECK(IoError, !overflow, "load_safetensors: '", path, "': the number of elements of tensor '", entry.name,
                 "' of shape ", entry.shape, " overflows");
    num_bytes *= size;
  }
  TANDEM_CHECK(IoError, num_bytes == entry.end - entry.begin, "load_safetensors: '", path, "': tensor '", entry.name,
               "' of ", entry.dtype, " ", entry.shape, " needs ", num_bytes, " bytes, its range has ",
               entry.end - entry.begin);
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
    if (parsed.unsupported.empty()) check_entry(path, entry);
  }
  TANDEM_CHECK(IoError, position == num_data_bytes, "load_safetensors: '", path, "': the tensors end at byte ",
               position, " of the data, the file has ", num_data_bytes);
  Header header;
  header.metadata = std::move(handler.metadata);
  header.entries.reserve(entries.size());
  for (ParsedEntry& parsed : entries) {
    if (parsed.unsupported.empty()) {
      header.entries.push_back(std::move(parsed.entry));
    } else {
      header.unsupported.emplace_back(std::move(parsed.entry.name), std::move(parsed.unsupported));
    }
  }
  return header;
}

}}}  // namespace tandem::v0::io
