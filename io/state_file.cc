#include <tandem/io/state_file.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tandem/io/digest_writers.h>
#include <tandem/io/json.h>
#include <tandem/io/safetensors.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

constexpr const char* kStateKey = "state";
constexpr size_t kMaxDepth = 64;
// State searches names linearly. The limits keep a hostile file from taking hours to load.
constexpr size_t kMaxEntries = 16384;              // of one state
constexpr size_t kMaxTensorsWithoutState = 65536;  // of a file without the key "state"

/// Appends the shortest text that is parsed as a double with the same bits.
void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? R"(["nan"])" : value > 0 ? R"(["inf"])" : R"(["-inf"])";
    return;
  }
  char digits[32];  // at most 24 characters are used
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  const std::string_view text(digits, static_cast<size_t>(result.ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_state(std::string& out, const State& state, const std::string& prefix, size_t depth) {
  TANDEM_CHECK(StateError, depth <= kMaxDepth, "save_state: the state is nested more than ", kMaxDepth, " deep");
  TANDEM_CHECK(StateError, state.entries().size() <= kMaxEntries, "save_state: a state has ", state.entries().size(),
               " entries, at most ", kMaxEntries, " are supported");
  out += '{';
  const char* separator = "";
  for (const auto& [name, value] : state.entries()) {
    out += separator;
    separator = ", ";
    TANDEM_CHECK(ValueError, is_valid_utf8(name), "save_state: the name '", prefix, name, "' is not valid UTF-8");
    out += json_quoted(name) + ": ";
    if (std::holds_alternative<Tensor>(value)) {
      out += "null";
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      out += std::to_string(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      append_double(out, *number);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      out += *flag ? "true" : "false";
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      TANDEM_CHECK(ValueError, is_valid_utf8(*text), "save_state: the string '", prefix, name, "' is not valid UTF-8");
      out += json_quoted(*text);
    } else {
      append_state(out, *std::get<std::shared_ptr<State>>(value), prefix + name + ".", depth + 1);
    }
  }
  out += '}';
}

/// Accepts the JSON that append_state writes.
class StateHandler : public JsonHandler {
 public:
  /// `tensors`: tensors by path. Each tensor that the text names is moved into the state.
  StateHandler(std::string_view where, std::string_view text, std::map<std::string, Tensor>& tensors)
      : JsonHandler(where, text), tensors_(tensors) {}

  State state;

 private:
  /// A state whose end has not been read.
  struct Level {
    std::string prefix;  ///< of its entries' paths
    std::string name;    ///< of its current entry
    State state;
    std::unordered_set<std::string> names;
  };

  void key(std::string name) override {
    Level& level = levels_.back();
    check(!name.empty() && name.find('.') == std::string::npos, "invalid name '", name,
          "' (expected a name that is not empty and has no '.')");
    check(level.names.size() < kMaxEntries, "more than ", kMaxEntries, " entries in one state");
    check(level.names.insert(name).second, "the entry '", level.prefix, name, "' occurs twice");
    level.name = std::move(name);
  }

  void value(JsonValue value) override {
    if (in_array_) {
      check(!number_, "expected one string in the array of '", path(), "'");
      number_ = special_number(get<std::string>(value, "'", path(), "': "));
    } else if (std::holds_alternative<JsonArray>(value)) {
      in_array_ = true;
    } else if (std::holds_alternative<JsonObject>(value)) {
      check(levels_.size() < kMaxDepth, "nested more than ", kMaxDepth, " deep");
      levels_.push_back({.prefix = levels_.empty() ? "" : path() + ".", .name = {}, .state = {}, .names = {}});
    } else if (std::holds_alternative<std::nullptr_t>(value)) {
      auto tensor = tensors_.extract(path());
      check(!tensor.empty(), "the file has no tensor '", path(), "'");
      set(std::move(tensor.mapped()));
    } else if (const auto* positive = std::get_if<uint64_t>(&value)) {
      set(static_cast<int64_t>(*positive));
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      set(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      set(*number);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      set(*flag);
    } else {
      set(std::move(std::get<std::string>(value)));
    }
  }

  void end() override {
    if (in_array_) {
      check(number_.has_value(), "expected one string in the array of '", path(), "'");
      set(*std::exchange(number_, std::nullopt));
      in_array_ = false;
      return;
    }
    State ended = std::move(levels_.back().state);
    levels_.pop_back();
    if (levels_.empty()) {
      state = std::move(ended);
    } else {
      set(std::make_shared<State>(std::move(ended)));
    }
  }

  double special_number(const std::string& name) const {
    check(name == "nan" || name == "inf" || name == "-inf", "'", path(), "': expected 'nan', 'inf' or '-inf', got '",
          name, "'");
    if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
    return name == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }

  std::string path() const { return levels_.back().prefix + levels_.back().name; }
  void set(State::Value value) { levels_.back().state.set(levels_.back().name, std::move(value)); }

  std::map<std::string, Tensor>& tensors_;
  std::vector<Level> levels_;
  bool in_array_ = false;
  std::optional<double> number_;  ///< of that array
};

/// The tensors of a state, whose values are added to `metadata`. Checks the state.
NamedTensors split_state(const State& state, Metadata& metadata) {
  append_state(metadata[kStateKey], state, "", 1);
  NamedTensors tensors = state.tensors();
  for (const auto& [name, tensor] : tensors)
    TANDEM_CHECK(StateError, tensor.defined(), "save_state: the tensor '", name, "' is undefined");
  return tensors;
}

State to_state(SafetensorsFile file, const std::string& path) {
  if (!file.skipped.empty()) {
    const auto& [name, dtype] = file.skipped.front();
    throw DTypeError(str("load_state: '", path, "': tensor '", name, "' has dtype ", dtype,
                         ", which tandem does not support; use load_safetensors(), which skips such tensors"));
  }
  const auto text = file.metadata.find(kStateKey);
  if (text == file.metadata.end()) {
    TANDEM_CHECK(IoError, file.tensors.size() <= kMaxTensorsWithoutState, "load_state: '", path, "' holds ",
                 file.tensors.size(), " tensors, expected at most ", kMaxTensorsWithoutState,
                 " without the metadata 'state'");
    State state;
    for (auto& [name, tensor] : file.tensors) {
      try {
        state.set(name, std::move(tensor));
      } catch (const StateError& error) {
        throw IoError(str("load_state: '", path, "': a tensor's name is not a path of a state\n  ", error.what()));
      }
    }
    return state;
  }
  std::map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : file.tensors) tensors.emplace(name, std::move(tensor));
  const std::string where = str("load_state: '", path, "': state, ");
  StateHandler handler(where, text->second, tensors);
  handler.parse();
  TANDEM_CHECK(IoError, tensors.empty(), "load_state: '", path, "': the state does not name the tensor '",
               tensors.begin()->first, "', which is in the file");
  return std::move(handler.state);
}

}  // namespace

FileDigest write_state(const std::string& path, const State& state, Metadata metadata) {
  const NamedTensors tensors = split_state(state, metadata);
  return write_safetensors(path, tensors, metadata);
}

void save_state(const std::string& path, const State& state) { write_state(path, state, {{"format", "pt"}}); }

// Not mapped: states are kept for long, and a mapping would keep the disk space of a removed checkpoint.
State load_state(const std::string& path) { return to_state(load_safetensors(path, {.mmap = false}), path); }

State map_state(const std::string& path) { return to_state(load_safetensors(path), path); }

std::string state_bytes(const State& state, Metadata metadata) {
  const NamedTensors tensors = split_state(state, metadata);
  return safetensors_bytes(tensors, metadata);
}

std::string state_to_bytes(const State& state) { return state_bytes(state, {{"format", "pt"}}); }

State state_from_bytes(std::string_view bytes, const std::string& name) {
  return to_state(load_safetensors_bytes(bytes, name), name);
}

}}}  // namespace tandem::v0::io
