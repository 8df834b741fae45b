#include <tandem/models/gpt2.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/base/math.h>
#include <tandem/io/pretrained.h>
#include <tandem/nn/init.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

nn::LayerNormOptions norm_options(const Gpt2Config& config) {
  // The results are only inputs of linear layers.
  return {.eps = config.layer_norm_epsilon, .low_precision_result = true};
}

int64_t inner(const Gpt2Config& config) { return config.n_inner.value_or(saturating_mul(4, config.n_embd)); }

/// Also bounds the sizes, so that their products do not overflow.
const Gpt2Config& checked(const Gpt2Config& config) {
  static constexpr int64_t kMax = 1 << 24;
  const auto check_size = [](const char* name, int64_t size) {
    TANDEM_CHECK(ValueError, size >= 1 && size <= kMax, "Gpt2: ", name, " is ", size, ", expected 1 <= ", name,
                 " <= ", kMax);
  };
  check_size("vocab_size", config.vocab_size);
  check_size("n_positions", config.n_positions);
  check_size("n_embd", config.n_embd);
  check_size("n_layer", config.n_layer);
  check_size("n_head", config.n_head);
  check_size("n_inner", inner(config));
  TANDEM_CHECK(ValueError, config.n_embd % config.n_head == 0, "Gpt2: n_embd ", config.n_embd,
               " is not a multiple of n_head ", config.n_head);
  return config;
}

/// As a double, because hostile sizes may overflow integers.
double num_parameters(const Gpt2Config& config) {
  const auto width = static_cast<double>(checked(config).n_embd), hidden = static_cast<double>(inner(config));
  const double block = 4 * width * width + 2 * width * hidden + 9 * width + hidden;
  return static_cast<double>(config.n_layer) * block +
         static_cast<double>(config.vocab_size + config.n_positions + 2) * width;
}

/// Whether transformers stores the parameter in a Conv1D, which is the transpose of a linear layer.
bool is_conv1d(std::string_view key) {
  return key.ends_with(".c_attn.weight") || key.ends_with(".c_fc.weight") || key.ends_with(".c_proj.weight");
}

/// The parameter in the other layout. A tensor that is not a matrix is unchanged, and load_state_dict reports it.
Tensor transposed_if_conv1d(std::string_view key, const Tensor& tensor) {
  return is_conv1d(key) && tensor.dim() == 2 ? tensor.t() : tensor;
}

}  // namespace

Gpt2Attention::Gpt2Attention(const Gpt2Config& config)
    : c_attn(add<nn::Linear>("c_attn", checked(config).n_embd, saturating_mul(3, config.n_embd))),
      c_proj(add<nn::Linear>("c_proj", config.n_embd, config.n_embd)),
      n_head_(config.n_head),
      attn_pdrop_(config.attn_pdrop),
      resid_pdrop_(config.resid_pdrop) {}

Tensor Gpt2Attention::operator()(const Tensor& x, nn::KeyValueCache* cache) {
  return call(x, [&](const Tensor& input) { return attend(input, cache); });
}

Tensor Gpt2Attention::attend(const Tensor& x, nn::KeyValueCache* cache) {
  const Tensor qkv = c_attn(x);
  AttentionOptions options = {.dropout_p = is_training() ? attn_pdrop_ : 0, .is_causal = true};
  Tensor heads;
  if (cache == nullptr) {
    heads = qkv_attention(qkv, n_head_, options);
  } else {
    const auto split = [&](const Tensor& part) { return part.unflatten(-1, {n_head_, -1}).transpose(1, 2); };
    const std::vector<Tensor> parts = chunk(qkv, 3, -1);
    options.query_offset = cache->length();
    const auto [keys, values] = cache->append(split(parts[1]), split(parts[2]));
    heads = scaled_dot_product_attention(split(parts[0]), keys, values, options).transpose(1, 2).flatten(2);
  }
  return dropout(c_proj(heads), resid_pdrop_, is_training());
}

Gpt2Mlp::Gpt2Mlp(const Gpt2Config& config)
    : c_fc(add<nn::Linear>("c_fc", checked(config).n_embd, inner(config), {.activation = nn::Activation::kGeluTanh})),
      c_proj(add<nn::Linear>("c_proj", inner(config), config.n_embd)),
      resid_pdrop_(config.resid_pdrop) {}

Tensor Gpt2Mlp::forward(const Tensor& x) { return dropout(c_proj(c_fc(x)), resid_pdrop_, is_training()); }

Gpt2Block::Gpt2Block(const Gpt2Config& config)
    : ln_1(add<nn::LayerNorm>("ln_1", config.n_embd, norm_options(config))),
      attn(add<Gpt2Attention>("attn", config)),
      ln_2(add<nn::LayerNorm>("ln_2", config.n_embd, norm_options(config))),
      mlp(add<Gpt2Mlp>("mlp", config)) {}

Tensor Gpt2Block::operator()(const Tensor& x, nn::KeyValueCache* cache) {
  return call(x, [&](const Tensor& input) { return run(input, cache); });
}

Tensor Gpt2Block::run(const Tensor& x, nn::KeyValueCache* cache) {
  const auto [h, normal] = ln_2.add_forward(x, attn(ln_1(x), cache));
  return h + mlp(normal);
}

Gpt2Model::Gpt2Model(const Gpt2Config& config)
    : wte(add<nn::Embedding>("wte", checked(config).vocab_size, config.n_embd)),
      wpe(add<nn::Embedding>("wpe", config.n_positions, config.n_embd)),
      h(add<nn::ModuleList<Gpt2Block>>("h")),
      ln_f(add<nn::LayerNorm>("ln_f", config.n_embd, norm_options(config))),
      embd_pdrop_(config.embd_pdrop) {
  for (int64_t i = 0; i < config.n_layer; ++i) h.append(std::make_unique<Gpt2Block>(config));
}

Tensor Gpt2Model::operator()(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) {
  const nn::ModuleScope scope(*this);
  const Tensor positions = arange(begin, saturating_add(begin, tokens.size(1)), 1, tokens.device());
  Tensor x = dropout(wte(tokens) + wpe(positions), embd_pdrop_, is_training());
  size_t i = 0;
  for (Gpt2Block* block : h) x = (*block)(x, caches == nullptr ? nullptr : &(*caches)[i++]);
  return ln_f(x);
}

Gpt2::Gpt2(const Gpt2Config& config)
    : CausalLanguageModel(config.n_layer, config.n_positions),
      transformer(add<Gpt2Model>("transformer", config)),
      lm_head(add<LanguageModelHead>("lm_head", transformer.wte.weight)),
      config_(config) {
  const double residual = config.initializer_range / std::sqrt(2 * static_cast<double>(config.n_layer));
  for (const auto& [name, parameter] : named_parameters()) {
    if (name.ends_with(".bias")) {
      nn::init::zeros_(parameter);
    } else if (parameter.dim() == 2) {
      nn::init::normal_(parameter, 0, name.ends_with(".c_proj.weight") ? residual : config.initializer_range);
    }
  }
}

Tensor Gpt2::hidden_states(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) {
  return transformer(tokens, begin, caches);
}

Tensor Gpt2::logits(const Tensor& hidden) { return lm_head(hidden); }

std::unique_ptr<Gpt2> Gpt2::from_pretrained(const std::string& folder) {
  const nn::init::SkipGuard skip;
  const std::string path = folder + "/config.json";
  const Gpt2Config config = read_gpt2_config(path);
  const io::SafetensorsFile file = io::load_pretrained(folder);
  int64_t stored = 0;
  for (const auto& [name, tensor] : file.tensors) stored += tensor.numel();
  // A model that is slightly too large is built, so that load_state_dict can list the differences.
  const double size = num_parameters(config);
  TANDEM_CHECK(IoError, size <= 2 * static_cast<double>(stored), "Gpt2::from_pretrained: '", path,
               "' describes a model of ", format_general(size, 3), " parameters, the weights in the folder have ",
               stored);
  auto model = std::make_unique<Gpt2>(config);
  model->load_transformers_state_dict(file.tensors);
  return model;
}

State Gpt2::transformers_state_dict() const {
  State result;
  for (const auto& [key, tensor] : state_dict().tensors()) result.set(key, transposed_if_conv1d(key, tensor));
  return result;
}

nn::LoadReport Gpt2::load_transformers_state_dict(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<std::pair<std::string, Tensor>> own;
  for (const auto& [key, tensor] : tensors) {
    if (key.ends_with(".attn.bias") || key.ends_with(".attn.masked_bias")) continue;  // masks
    const bool is_complete = key.starts_with("transformer.") || key.starts_with("lm_head.");
    own.emplace_back(is_complete ? key : "transformer." + key, transposed_if_conv1d(key, tensor));
  }
  return load_state_dict(own, {.convert_dtype = true});
}

}}}  // namespace tandem::v0::models
