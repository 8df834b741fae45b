#include <tandem/io/safetensors_index.h>

#include <nlohmann/json.hpp>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/io/json.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

constexpr std::string_view kWeightMap = "weight_map";

/// Accepts the JSON of an index.
class IndexHandler : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;

  WeightMap weight_map;
  bool has_weight_map = false;

 private:
  void key(std::string name) override {
    if (depth() == 1) {
      in_weight_map_ = name == kWeightMap;
      check(!in_weight_map_ || !has_weight_map, "'", kWeightMap, "' occurs twice");
      has_weight_map = has_weight_map || in_weight_map_;
    } else if (in_weight_map_) {
      name_ = std::move(name);
    }
  }

  void value(JsonValue value) override {
    if (depth() == 0 || !in_weight_map_) return;
    if (depth() == 1) {
      get<JsonObject>(value, "'", kWeightMap, "': ");
      return;
    }
    std::string& file = get<std::string>(value, "tensor '", name_, "': ");
    // A file outside of the folder, or one of its folders.
    check(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos, "tensor '", name_,
          "': '", file, "' is not the name of a file in the folder");
    check(file.find('\0') == std::string::npos, "tensor '", name_, "': the file name has a NUL");
    check(weight_map.try_emplace(name_, std::move(file)).second, "tensor '", name_, "' occurs twice");
  }

  void end() override {}

  bool in_weight_map_ = false;
  std::string name_;  ///< of the tensor
};

}  // namespace

std::string write_index(const WeightMap& weight_map, int64_t total_size) {
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_size}}}, {kWeightMap, weight_map}};
  return index.dump(2) + "\n";
}

WeightMap parse_index(const std::string& path, std::string_view text) {
  const std::string where = str("load_pretrained: '", path, "': ");
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());  // some editors write it
  IndexHandler handler(where, text);
  handler.parse();
  TANDEM_CHECK(IoError, handler.has_weight_map, where, "'", kWeightMap, "' is missing");
  return std::move(handler.weight_map);
}

}}}  // namespace tandem::v0::io
