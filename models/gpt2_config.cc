#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/models/gpt2.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

constexpr const char* kOp = "read_gpt2_config";

/// The settings of a file.
class Settings {
 public:
  explicit Settings(const std::string& path)
      : path_(path), json_(nlohmann::json::parse(InputFile(kOp, path).text(), nullptr, /*allow_exceptions=*/false)) {
    TANDEM_CHECK(IoError, json_.is_object(), kOp, ": '", path, "' is not a JSON object");
    const std::string type = text("model_type");
    TANDEM_CHECK(IoError, type == "gpt2", kOp, ": '", path, "' has the model_type '", type, "', expected 'gpt2'");
  }

  void read(const char* name, int64_t& value) const {
    if (const nlohmann::json* found = find(name)) {
      // Integers beyond uint64_t are stored as floating-point numbers.
      const bool is_too_large = found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX};
      check_type(name, found->is_number_integer() && !is_too_large, "an integer");
      value = found->get<int64_t>();
    }
  }
  void read(const char* name, double& value) const {
    if (const nlohmann::json* found = find(name)) {
      check_type(name, found->is_number(), "a number");
      value = found->get<double>();
    }
  }
  void read(const char* name, std::optional<int64_t>& value) const {
    if (find(name) != nullptr) read(name, value.emplace());
  }
  /// Throws ValueError unless the setting has this value or is missing.
  void expect(const char* name, const nlohmann::json& value) const {
    const nlohmann::json* found = find(name);
    if (found == nullptr || *found == value) return;
    // Only of simple values, because dump() recurses.
    const std::string shown = found->is_primitive()
                                  ? found->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
                                  : str("an ", found->type_name());
    throw ValueError(str(kOp, ": '", path_, "' has ", name, ' ', shown, ", but Gpt2 supports only ", value.dump()));
  }

 private:
  /// Null if the setting is missing or null.
  const nlohmann::json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const char* name) const {
    const nlohmann::json* found = find(name);
    return found != nullptr && found->is_string() ? found->get<std::string>() : "";
  }
  void check_type(const char* name, bool is_right, const char* expected) const {
    TANDEM_CHECK(IoError, is_right, kOp, ": '", path_, "': ", name, " is not ", expected);
  }

  std::string path_;
  nlohmann::json json_;
};

}  // namespace

Gpt2Config read_gpt2_config(const std::string& path) {
  const Settings settings(path);
  settings.expect("activation_function", "gelu_new");
  settings.expect("scale_attn_weights", true);
  settings.expect("scale_attn_by_inverse_layer_idx", false);
  settings.expect("add_cross_attention", false);
  settings.expect("tie_word_embeddings", true);
  Gpt2Config config;
  settings.read("vocab_size", config.vocab_size);
  settings.read("n_positions", config.n_positions);
  settings.read("n_embd", config.n_embd);
  settings.read("n_layer", config.n_layer);
  settings.read("n_head", config.n_head);
  settings.read("n_inner", config.n_inner);
  settings.read("resid_pdrop", config.resid_pdrop);
  settings.read("embd_pdrop", config.embd_pdrop);
  settings.read("attn_pdrop", config.attn_pdrop);
  settings.read("layer_norm_epsilon", config.layer_norm_epsilon);
  settings.read("initializer_range", config.initializer_range);
  return config;
}

}}}  // namespace tandem::v0::models
