// A folder of transformers with a GPT-2: its config.json and weights, and folders that are written for transformers.
#include <tandem/io/pretrained.h>
#include <tandem/models/gpt2.h>
#include <tandem/tests/models/reference.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

constexpr const char* kFolder = "tests/fixtures/gpt2";

Tensor expected(const std::string& name) {
  for (const auto& [key, tensor] : io::load_safetensors(std::string(kFolder) + "/expected.safetensors").tensors) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

/// Expects transformers' logits of every eighth token.
void expect_logits(models::Gpt2& model) {
  model.eval();
  const NoGradGuard no_grad;
  expect_close(model(expected("tokens")).slice(1, 7, 24, 8), expected("logits"), 1e-5);
}

TEST(Gpt2Folder, LogitsEqualTransformers) { expect_logits(*models::Gpt2::from_pretrained(kFolder)); }

TEST(Gpt2Folder, WrittenFolderHasTheNamesAndShapesOfTransformers) {
  const auto model = models::Gpt2::from_pretrained(kFolder);
  const auto source = io::load_pretrained(kFolder);
  const std::string folder = ::testing::TempDir() + "gpt2_folder_test";
  io::save_pretrained(folder, model->transformers_state_dict().tensors());
  const auto written = io::load_pretrained(folder);
  EXPECT_EQ(written.metadata, source.metadata);
  State source_state, written_state;
  for (const auto& [name, tensor] : source.tensors) source_state.set(name, tensor);
  for (const auto& [name, tensor] : written.tensors) {
    written_state.set(name, tensor);
    EXPECT_EQ(tensor.to_vector<float>(), source_state.get<Tensor>(name).to_vector<float>()) << name;
  }
  EXPECT_EQ(state_text(written_state), state_text(source_state));
  models::Gpt2 other(model->config());
  const nn::LoadReport report = other.load_transformers_state_dict(written.tensors);
  EXPECT_EQ(report.loaded_keys.size(), 2u + 2u * 12u + 2u + 1u);
  expect_logits(other);
}

TEST(Gpt2Folder, ModelsLargerThanTheWeightsAreRejectedBeforeTheyAreBuilt) {
  const std::string folder = ::testing::TempDir() + "gpt2_large";
  io::save_pretrained(folder, {{"wte.weight", ones({640, 24})}});
  std::ofstream(folder + "/config.json") << R"({"model_type": "gpt2", "n_layer": 16777216})";
  EXPECT_ERROR(IoError, models::Gpt2::from_pretrained(folder),
               "Gpt2::from_pretrained: '" + folder +
                   "/config.json' describes a model of 1.19e+14 parameters, the weights in the folder have 15360");
}

TEST(Gpt2Config, ReadsAllSettings) {
  const models::Gpt2Config config = models::read_gpt2_config(std::string(kFolder) + "/config.json");
  EXPECT_EQ(config.vocab_size, 640);
  EXPECT_EQ(config.n_positions, 64);
  EXPECT_EQ(config.n_embd, 24);
  EXPECT_EQ(config.n_layer, 2);
  EXPECT_EQ(config.n_head, 3);
  EXPECT_EQ(config.n_inner, std::nullopt);
}

/// Reads a config.json with this content; errors have "PATH" instead of the path.
models::Gpt2Config read(const std::string& json) {
  const std::string path = ::testing::TempDir() + "gpt2_config.json";
  std::ofstream(path, std::ios::binary) << json;
  return models::read_gpt2_config(path);
}
template <class E>
std::string read_error(const std::string& json) {
  std::string text = error_text<E>([&] { read(json); });
  const std::string path = ::testing::TempDir() + "gpt2_config.json";
  const size_t found = text.find(path);
  return found == std::string::npos ? text : text.replace(found, path.size(), "PATH");
}

TEST(Gpt2Config, SettingsOverrideDefaults) {
  const models::Gpt2Config config = read(
      R"({"model_type": "gpt2", "n_inner": 48, "resid_pdrop": 0, "embd_pdrop": 0.25, "attn_pdrop": 0.5,
          "layer_norm_epsilon": 1e-06, "initializer_range": 0.01, "n_head": null, "unknown": [{}]})");
  EXPECT_EQ(config.n_inner, 48);
  EXPECT_EQ(config.resid_pdrop, 0);
  EXPECT_EQ(config.embd_pdrop, 0.25);
  EXPECT_EQ(config.attn_pdrop, 0.5);
  EXPECT_EQ(config.layer_norm_epsilon, 1e-6);
  EXPECT_EQ(config.initializer_range, 0.01);
  EXPECT_EQ(config.n_head, 12);
  EXPECT_EQ(config.vocab_size, 50257);
}

TEST(Gpt2Config, HostileFilesAreRejected) {
  for (const char* json : {"", "{", "[]", "\"gpt2\"", "{\"model_type\": \"gpt2\"} x", "\xff{}"})
    EXPECT_EQ(read_error<IoError>(json), "read_gpt2_config: 'PATH' is not a JSON object") << json;
  EXPECT_EQ(read_error<IoError>(std::string(100000, '[')), "read_gpt2_config: 'PATH' is not a JSON object");
  EXPECT_EQ(read_error<IoError>("{}"), "read_gpt2_config: 'PATH' has the model_type '', expected 'gpt2'");
  EXPECT_EQ(read_error<IoError>(R"({"model_type": "llama"})"),
            "read_gpt2_config: 'PATH' has the model_type 'llama', expected 'gpt2'");
  for (const char* value : {"\"12\"", "1.5", "true", "[1]", "18446744073709551615", "1e30"})
    EXPECT_EQ(read_error<IoError>(R"({"model_type": "gpt2", "n_layer": )" + std::string(value) + "}"),
              "read_gpt2_config: 'PATH': n_layer is not an integer")
        << value;
  EXPECT_EQ(read_error<IoError>(R"({"model_type": "gpt2", "attn_pdrop": "x"})"),
            "read_gpt2_config: 'PATH': attn_pdrop is not a number");
  EXPECT_EQ(read_error<ValueError>(R"({"model_type": "gpt2", "activation_function": "relu"})"),
            "read_gpt2_config: 'PATH' has activation_function \"relu\", but Gpt2 supports only \"gelu_new\"");
  EXPECT_EQ(read_error<ValueError>(R"({"model_type": "gpt2", "tie_word_embeddings": false})"),
            "read_gpt2_config: 'PATH' has tie_word_embeddings false, but Gpt2 supports only true");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(read_error<ValueError>(R"({"model_type": "gpt2", "activation_function": )" + deep + "}"),
            "read_gpt2_config: 'PATH' has activation_function an array, but Gpt2 supports only \"gelu_new\"");
  EXPECT_EQ(read(R"({"model_type": "gpt2", "unknown": )" + deep + "}").n_layer, 12);
  const std::string missing = ::testing::TempDir() + "no_such_folder/config.json";
  EXPECT_ERROR(IoError, models::read_gpt2_config(missing),
               "read_gpt2_config: cannot open '" + missing + "': No such file or directory");
}

}}  // namespace tandem::testing
