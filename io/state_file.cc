#include <tandem/io/state_file.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include <tandem/io/digest_writers.h>
#include <tandem/io/json.h>
#include <tandem/io/safetensors.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

constexpr const char* kStateKey = "state";
constexpr int kMaxDepth = 64;
// A State looks for a name from one end to the other: a file that took hours to read would be an attack.
constexpr size_t kMaxEntries = 16384;  // of one state
constexpr size_t kMaxForeign = 65536;  // tensors of a file without a text

/// So that the reader knows it for a double, and gets the same bits.
void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? R"(["nan"])" : value > 0 ? R"(["inf"])" : R"(["-inf"])";
    return;
  }
  char digits[32];  // the shortest text that gives the same double has at most 24 characters
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  const std::string_view text(digits, static_cast<size_t>(result.ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_state(std::string& out, const State& state, const std::string& prefix, int depth) {
  TANDEM_CHECK(StateError, depth <= kMaxDepth, "save_state: the state is nested more than ", kMaxDepth, " deep");
  TANDEM_CHECK(StateError, state.entries().size() <= kMaxEntries, "save_state: a state has ", state.entries().size(),
               " entries, at most ", kMaxEntries, " are read back");
  out += '{';
  const char* separator = "";
  for (const auto& [name, value] : state.entries()) {
    out += separator;
    separator = ", ";
    append_quoted(out, name);
    out += ": ";
    if (std::holds_alternative<Tensor>(value)) {
      out += "null";
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      out += std::to_string(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      append_double(out, *number);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      out += *flag ? "true" : "false";
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      TANDEM_CHECK(ValueError, is_valid_utf8(*text), "save_state: the string '", prefix, name, "' is no valid UTF-8");
      append_quoted(out, *text);
    } else {
      append_state(out, *std::get<std::shared_ptr<State>>(value), prefix + name + ".", depth + 1);
    }
  }
  out += '}';
}

/// Reads what append_state wrote.
class Reader {
 public:
  /// `tensors` by path; those that the text names are moved out.
  Reader(std::string_view where, std::string_view text, std::map<std::string, Tensor>& tensors)
      : json_(where, text), tensors_(tensors) {}

  State read() {
    State result = state("", 1);
    json_.expect_end();
    return result;
  }

 private:
  State state(const std::string& prefix, int depth) {
    json_.check(depth <= kMaxDepth, "nested more than ", kMaxDepth, " deep");
    State result;
    std::unordered_set<std::string> names;
    json_.expect('{');
    if (json_.accept('}')) return result;
    do {
      const std::string name = json_.string();
      json_.check(!name.empty() && name.find('.') == std::string::npos, "'", name, "' is no name of an entry");
      json_.check(names.size() < kMaxEntries, "more than ", kMaxEntries, " entries in one state");
      json_.check(names.insert(name).second, "the entry '", prefix, name, "' occurs twice");
      json_.expect(':');
      result.set(name, value(prefix + name, depth));
    } while (json_.accept(','));
    json_.expect('}');
    return result;
  }

  State::Value value(const std::string& path, int depth) {
    switch (json_.peek()) {
      case '{': return std::make_shared<State>(state(path + ".", depth + 1));
      case '"': return json_.string();
      case '[': return special_number();
      case 'n': {
        json_.check(json_.accept_word("null"), "expected 'null'");
        const auto found = tensors_.find(path);
        json_.check(found != tensors_.end(), "the file does not hold the tensor '", path, "'");
        Tensor tensor = std::move(found->second);
        tensors_.erase(found);
        return tensor;
      }
      case 't': json_.check(json_.accept_word("true"), "expected 'true'"); return true;
      case 'f': json_.check(json_.accept_word("false"), "expected 'false'"); return false;
      default: {
        const auto number = json_.number();
        if (const auto* integer = std::get_if<int64_t>(&number)) return *integer;
        return std::get<double>(number);
      }
    }
  }

  double special_number() {
    json_.expect('[');
    const std::string name = json_.string();
    json_.check(name == "nan" || name == "inf" || name == "-inf", "'", name, "' is none of nan, inf, -inf");
    json_.expect(']');
    if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
    return name == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }

  JsonReader json_;
  std::map<std::string, Tensor>& tensors_;
};

}  // namespace

FileDigest write_state(const std::string& path, const State& state) {
  Metadata metadata;
  append_state(metadata[kStateKey], state, "", 1);
  NamedTensors tensors = state.tensors();
  for (const auto& [name, tensor] : tensors)
    TANDEM_CHECK(StateError, tensor.defined(), "save_state: the tensor '", name, "' is undefined");
  return write_safetensors(path, tensors, metadata);
}

void save_state(const std::string& path, const State& state) { write_state(path, state); }

State load_state(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  const auto text = file.metadata.find(kStateKey);
  if (text == file.metadata.end()) {
    TANDEM_CHECK(IoError, file.tensors.size() <= kMaxForeign, "load_state: '", path, "' holds ", file.tensors.size(),
                 " tensors, at most ", kMaxForeign, " become a state");
    State state;
    for (auto& [name, tensor] : file.tensors) {
      try {
        state.set(name, std::move(tensor));
      } catch (const StateError& error) {
        throw IoError(
            str("load_state: '", path, "': the names of its tensors are no paths of a state\n  ", error.what()));
      }
    }
    return state;
  }
  std::map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : file.tensors) tensors.emplace(name, std::move(tensor));
  const std::string where = str("load_state: '", path, "': state, ");
  State state = Reader(where, text->second, tensors).read();
  TANDEM_CHECK(IoError, tensors.empty(), "load_state: '", path, "': the state does not name the tensor '",
               tensors.begin()->first, "', which the file holds");
  return state;
}

}}}  // namespace tandem::v0::io
