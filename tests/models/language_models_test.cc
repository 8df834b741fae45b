// Language models: names, shapes, logits and generated tokens are compared with transformers and PyTorch.
#include <tandem/models/gpt2.h>
#include <tandem/models/llama.h>
#include <tandem/models/lstm.h>
#include <tandem/nn/init.h>
#include <tandem/tests/models/reference.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using models::Gpt2, models::Gpt2Config, models::Llama, models::LlamaConfig;

constexpr Gpt2Config kTinyGpt2 = {.vocab_size = 23, .n_positions = 20, .n_embd = 16, .n_layer = 2, .n_head = 2};

/// Expects the recorded logits, with and without caches, and generated tokens.
void expect_transformers(models::CausalLanguageModel& model, const std::string& name, double tolerance) {
  const Tensor tokens = drawn_tokens({2, 12}, 23, 3), expected = recorded(name + "/logits");
  const NoGradGuard no_grad;
  expect_close(model(tokens), expected, tolerance);
  auto caches = model.make_caches(12);
  std::vector<Tensor> steps = {model(tokens.slice(1, 0, 7), caches)};
  for (int64_t t = 7; t < 12; ++t) steps.push_back(model(tokens.slice(1, t, t + 1), caches));
  expect_close(cat(steps, 1), expected, tolerance);
  EXPECT_EQ(model.generate(tokens.slice(1, 0, 5), {.max_new_tokens = 12}).to_vector<int64_t>(),
            recorded(name + "/generated").to_vector<int64_t>());
}

void draw_gpt2(Gpt2& model) {
  model.to(kFloat64);
  model.eval();
  draw_state(model.transformers_state_dict());
}

TEST(Gpt2, EqualsTransformers) {
  Gpt2 model(kTinyGpt2);
  draw_gpt2(model);
  expect_transformers(model, "gpt2", 1e-10);
  Gpt2Config config = kTinyGpt2;
  config.n_inner = 20;
  config.layer_norm_epsilon = 1e-3;
  Gpt2 other(config);
  draw_gpt2(other);
  expect_transformers(other, "gpt2_inner", 1e-10);
}

// transformers computes norms, and the angles of rotary embeddings, in float32.
TEST(Llama, EqualsTransformers) {
  const LlamaConfig sizes = {.vocab_size = 23,
                             .hidden_size = 16,
                             .intermediate_size = 24,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 4,
                             .num_key_value_heads = 2,
                             .max_position_embeddings = 20};
  Llama grouped(sizes);
  EXPECT_EQ(state_text(grouped.state_dict()), recorded_text("llama_grouped/state"));
  draw_module(grouped);
  expect_transformers(grouped, "llama_grouped", 3e-6);
  LlamaConfig config = sizes;
  config.num_attention_heads = 2;
  config.head_dim = 6;
  config.tie_word_embeddings = config.attention_bias = config.mlp_bias = true;
  config.rms_norm_eps = 1e-3;
  config.rope_theta = 100;
  Llama tied(config);
  EXPECT_EQ(state_text(tied.state_dict()), recorded_text("llama_tied/state"));
  draw_module(tied);
  expect_transformers(tied, "llama_tied", 3e-6);
}

TEST(LstmLanguageModel, EqualsPyTorch) {
  models::LstmLanguageModel model({.vocabulary = 23, .width = 8});
  draw_module(model);
  const Tensor tokens = drawn_tokens({2, 12}, 23, 3);
  expect_close(model(tokens), recorded("lstm/logits"), 1e-10);
  const auto [first, h, c] = model(tokens.slice(1, 0, 5), {}, {});
  expect_close(cat({first, model(tokens.slice(1, 5, 12), h, c).output}, 1), recorded("lstm/logits"), 1e-10);
}

int64_t count(const nn::Module& model) {
  int64_t sum = 0;
  for (const Tensor& parameter : model.parameters()) sum += parameter.numel();
  return sum;
}

TEST(Gpt2, SmallHasTransformersState) {
  const nn::init::SkipGuard skip;
  const Gpt2 model(Gpt2Config::small());
  EXPECT_EQ(state_text(model.transformers_state_dict()), recorded_text("gpt2/state"));
  EXPECT_EQ(count(model), 124439808);
}

/// Expects the state of transformers' model with one block and few tokens, and the number of parameters of the whole
/// model, which is computed from it.
void expect_large_gpt2(Gpt2Config config, const std::string& name) {
  const int64_t layers = config.n_layer, vocabulary = config.vocab_size;
  config.n_layer = 1;
  config.vocab_size = 16;
  const nn::init::SkipGuard skip;
  const Gpt2 model(config);
  EXPECT_EQ(state_text(model.transformers_state_dict()), recorded_text(name + "/state"));
  const int64_t parameters =
      count(model) + (layers - 1) * count(model.transformer.h[0]) + (vocabulary - 16) * config.n_embd;
  EXPECT_EQ(std::to_string(parameters), recorded_text(name + "/parameters/state"));
}

TEST(Gpt2, LargerSizesHaveTransformersState) {
  expect_large_gpt2(Gpt2Config::medium(), "gpt2_medium");
  expect_large_gpt2(Gpt2Config::large(), "gpt2_large");
  expect_large_gpt2(Gpt2Config::xl(), "gpt2_xl");
}

TEST(Gpt2, LoadsPublishedNamesMasksAndHalfTypes) {
  Gpt2 model(kTinyGpt2), other(kTinyGpt2);
  std::vector<std::pair<std::string, Tensor>> published;
  for (const auto& [key, tensor] : model.transformers_state_dict().tensors()) {
    if (key == "lm_head.weight") continue;
    published.emplace_back(key.substr(std::string("transformer.").size()), tensor.to(kBFloat16));
  }
  published.emplace_back("h.0.attn.bias", ones({1, 1, 20, 20}, {kUInt8}));
  published.emplace_back("h.1.attn.masked_bias", zeros({}));
  other.load_transformers_state_dict(published);
  for (const auto& [key, tensor] : model.state_dict().tensors()) {
    const Tensor loaded = other.state_dict().get<Tensor>(key);
    EXPECT_EQ(loaded.dtype(), kFloat32);
    EXPECT_EQ(loaded.to_vector<float>(), tensor.to(kBFloat16).to(kFloat32).to_vector<float>()) << key;
  }
}

TEST(Gpt2, IncompleteOrOtherWeightsAreRejectedUnchanged) {
  Gpt2 model(kTinyGpt2);
  const auto before = model.lm_head.weight.clone().to_vector<float>();
  State state = model.transformers_state_dict();
  state.set("transformer.wte.weight", zeros({23, 16}));
  state.set("transformer.h.0.mlp.c_fc.weight", zeros({64, 16}));
  state.set("transformer.h.1.attn.c_proj.weight", zeros({16}));
  state.set("transformer.h.2.ln_1.weight", zeros({16}));
  const std::string text = error_text<StateError>([&] { model.load_transformers_state_dict(state.tensors()); });
  for (const char* name :
       {"transformer.h.0.mlp.c_fc.weight", "transformer.h.1.attn.c_proj.weight", "transformer.h.2.ln_1.weight"})
    EXPECT_NE(text.find(name), std::string::npos) << text;
  EXPECT_EQ(model.lm_head.weight.to_vector<float>(), before);
}

TEST(Gpt2, HeadSharesTheTokenEmbedding) {
  const Gpt2 model(kTinyGpt2);
  EXPECT_EQ(model.lm_head.weight.data_ptr(), model.transformer.wte.weight.data_ptr());
  EXPECT_EQ(model.named_parameters().size(), 2u + 2u * 12u + 2u);
}

TEST(Gpt2, InitialWeightsFollowTransformers) {
  Gpt2Config config = kTinyGpt2;
  config.n_layer = 8;
  config.n_embd = 64;
  config.initializer_range = 0.03;
  const Gpt2 model(config);
  for (const auto& [name, parameter] : model.named_parameters()) {
    const bool is_norm = name.find(".ln_") != std::string::npos;
    double expected = name.ends_with(".c_proj.weight") ? 0.03 / 4 : 0.03;
    if (is_norm || name.ends_with(".bias")) expected = 0;
    EXPECT_NEAR(parameter.std({}, 0).item(), expected, 0.1 * expected) << name;
    EXPECT_NEAR(parameter.mean().item(), is_norm && name.ends_with(".weight") ? 1 : 0, 0.1 * expected) << name;
  }
}

TEST(Llama, InitialWeightsFollowTransformers) {
  const Llama model({.vocab_size = 50,
                     .hidden_size = 64,
                     .intermediate_size = 96,
                     .num_hidden_layers = 1,
                     .num_attention_heads = 4,
                     .max_position_embeddings = 8,
                     .attention_bias = true});
  EXPECT_NEAR(model.get_parameter("lm_head.weight").std({}, 0).item(), 0.02, 1e-3);
  EXPECT_NEAR(model.get_parameter("model.layers.0.mlp.up_proj.weight").std({}, 0).item(), 0.02, 1e-3);
  EXPECT_EQ(model.get_parameter("model.layers.0.self_attn.q_proj.bias").abs().sum().item(), 0);
  EXPECT_EQ(model.get_parameter("model.layers.0.input_layernorm.weight").sum().item(), 64);
}

TEST(LstmLanguageModel, InitialWeightsFollowPyTorchsExample) {
  const models::LstmLanguageModel model({.vocabulary = 50, .width = 40});
  for (const char* name : {"encoder.weight", "decoder.weight"}) {
    EXPECT_NEAR(model.get_parameter(name).max().item(), 0.1, 1e-3) << name;
    EXPECT_NEAR(model.get_parameter(name).min().item(), -0.1, 1e-3) << name;
  }
  EXPECT_EQ(model.decoder.bias.abs().sum().item(), 0);
}

TEST(Gpt2, DropoutActsInTrainingModeOnly) {
  for (const int part : {0, 1, 2}) {
    Gpt2Config config = kTinyGpt2;
    config.embd_pdrop = part == 0 ? 0.5 : 0;
    config.attn_pdrop = part == 1 ? 0.5 : 0;
    config.resid_pdrop = part == 2 ? 0.5 : 0;
    Gpt2 model(config);
    draw_state(model.state_dict());
    const Tensor tokens = drawn_tokens({1, 8}, 23, 3);
    EXPECT_NE(model(tokens).to_vector<float>(), model(tokens).to_vector<float>()) << part;
    model.eval();
    EXPECT_EQ(model(tokens).to_vector<float>(), model(tokens).to_vector<float>()) << part;
  }
}

TEST(LanguageModels, WrongSizesAreRejected) {
  EXPECT_ERROR(ValueError, Gpt2({.n_embd = 8, .n_head = 3}), "Gpt2: n_embd 8 is not a multiple of n_head 3");
  for (const int64_t size : {int64_t{0}, int64_t{-1}, INT64_MAX / 2})
    EXPECT_ERROR(ValueError, Gpt2({.n_embd = size, .n_head = 1}),
                 "Gpt2: n_embd is " + std::to_string(size) + ", expected 1 <= n_embd <= 16777216");
  EXPECT_ERROR(ValueError, Gpt2({.n_layer = 0}), "Gpt2: n_layer is 0, expected 1 <= n_layer <= 16777216");
  EXPECT_ERROR(ValueError, Llama({.num_attention_heads = 4, .num_key_value_heads = 3}),
               "Llama: num_attention_heads 4 is not a positive multiple of num_key_value_heads 3");
  EXPECT_ERROR(ValueError, Llama({.hidden_size = 10, .num_attention_heads = 4}),
               "Llama: hidden_size 10 is not a multiple of num_attention_heads 4; set head_dim");
}

}}  // namespace tandem::testing
