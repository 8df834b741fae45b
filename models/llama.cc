#include <tandem/models/llama.h>

#include <memory>
#include <tuple>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/nn/init.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

int64_t key_value_heads(const LlamaConfig& config) {
  return config.num_key_value_heads.value_or(config.num_attention_heads);
}

int64_t head_dim(const LlamaConfig& config) {
  const int64_t heads = config.num_attention_heads, key_heads = key_value_heads(config);
  TANDEM_CHECK(ValueError, heads >= 1 && key_heads >= 1 && heads % key_heads == 0, "Llama: num_attention_heads ", heads,
               " is not a positive multiple of num_key_value_heads ", key_heads);
  TANDEM_CHECK(ValueError, config.head_dim || config.hidden_size % heads == 0, "Llama: hidden_size ",
               config.hidden_size, " is not a multiple of num_attention_heads ", heads, "; set head_dim");
  return config.head_dim.value_or(config.hidden_size / heads);
}

const LlamaConfig& checked(const LlamaConfig& config) {
  head_dim(config);
  return config;
}

nn::LinearOptions attention_linear(const LlamaConfig& config) { return {.bias = config.attention_bias}; }
nn::LinearOptions mlp_linear(const LlamaConfig& config) { return {.bias = config.mlp_bias}; }
nn::RMSNormOptions norm_options(const LlamaConfig& config) { return {.eps = config.rms_norm_eps}; }

}  // namespace

LlamaAttention::LlamaAttention(const LlamaConfig& config)
    : q_proj(add<nn::Linear>("q_proj", config.hidden_size, saturating_mul(config.num_attention_heads, head_dim(config)),
                             attention_linear(config))),
      k_proj(add<nn::Linear>("k_proj", config.hidden_size, saturating_mul(key_value_heads(config), head_dim(config)),
                             attention_linear(config))),
      v_proj(add<nn::Linear>("v_proj", config.hidden_size, saturating_mul(key_value_heads(config), head_dim(config)),
                             attention_linear(config))),
      o_proj(add<nn::Linear>("o_proj", saturating_mul(config.num_attention_heads, head_dim(config)), config.hidden_size,
                             attention_linear(config))),
      head_dim_(head_dim(config)),
      attention_dropout_(config.attention_dropout) {}

Tensor LlamaAttention::operator()(const Tensor& x, const RotaryTables& tables, nn::KeyValueCache* cache) {
  const nn::ModuleScope scope(*this);
  const auto heads = [&](const Tensor& projected) { return projected.unflatten(-1, {-1, head_dim_}).transpose(1, 2); };
  const Tensor query = rotary_embedding(heads(q_proj(x)), tables.cos, tables.sin);
  Tensor key = rotary_embedding(heads(k_proj(x)), tables.cos, tables.sin);
  Tensor value = heads(v_proj(x));
  AttentionOptions options = {.dropout_p = is_training() ? attention_dropout_ : 0,
                              .is_causal = true,
                              .enable_gqa = query.size(1) != key.size(1)};
  if (cache != nullptr) {
    options.query_offset = cache->length();
    std::tie(key, value) = cache->append(key, value);
  }
  return o_proj(scaled_dot_product_attention(query, key, value, options).transpose(1, 2).flatten(2));
}

LlamaMlp::LlamaMlp(const LlamaConfig& config)
    : gate_proj(add<nn::Linear>("gate_proj", config.hidden_size, config.intermediate_size, mlp_linear(config))),
      up_proj(add<nn::Linear>("up_proj", config.hidden_size, config.intermediate_size, mlp_linear(config))),
      down_proj(add<nn::Linear>("down_proj", config.intermediate_size, config.hidden_size, mlp_linear(config))) {}

Tensor LlamaMlp::forward(const Tensor& x) { return down_proj(silu(gate_proj(x)) * up_proj(x)); }

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaConfig& config)
    : self_attn(add<LlamaAttention>("self_attn", config)),
      mlp(add<LlamaMlp>("mlp", config)),
      input_layernorm(add<nn::RMSNorm>("input_layernorm", config.hidden_size, norm_options(config))),
      post_attention_layernorm(add<nn::RMSNorm>("post_attention_layernorm", config.hidden_size, norm_options(config))) {
}

Tensor LlamaDecoderLayer::operator()(const Tensor& x, const RotaryTables& tables, nn::KeyValueCache* cache) {
  const nn::ModuleScope scope(*this);
  const Tensor h = x + self_attn(input_layernorm(x), tables, cache);
  return h + mlp(post_attention_layernorm(h));
}

LlamaModel::LlamaModel(const LlamaConfig& config)
    : embed_tokens(add<nn::Embedding>("embed_tokens", checked(config).vocab_size, config.hidden_size)),
      layers(add<nn::ModuleList<LlamaDecoderLayer>>("layers")),
      norm(add<nn::RMSNorm>("norm", config.hidden_size, norm_options(config))),
      cos_(add_buffer("cos", {}, {.persistent = false})),
      sin_(add_buffer("sin", {}, {.persistent = false})) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.append(std::make_unique<LlamaDecoderLayer>(config));
  const RotaryTables tables =
      rotary_tables(config.max_position_embeddings, head_dim(config), {.base = config.rope_theta});
  cos_ = tables.cos;
  sin_ = tables.sin;
}

Tensor LlamaModel::operator()(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) {
  const nn::ModuleScope scope(*this);
  const RotaryTables tables = {cos_.narrow(0, begin, tokens.size(1)), sin_.narrow(0, begin, tokens.size(1))};
  Tensor x = embed_tokens(tokens);
  size_t i = 0;
  for (LlamaDecoderLayer* layer : layers) x = (*layer)(x, tables, caches == nullptr ? nullptr : &(*caches)[i++]);
  return norm(x);
}

Llama::Llama(const LlamaConfig& config)
    : CausalLanguageModel(config.num_hidden_layers, config.max_position_embeddings),
      model(add<LlamaModel>("model", config)),
      lm_head(add<LanguageModelHead>("lm_head", config.tie_word_embeddings
                                                    ? model.embed_tokens.weight
                                                    : empty({config.vocab_size, config.hidden_size}))),
      config_(config) {
  for (const auto& [name, parameter] : named_parameters()) {
    if (name.ends_with(".bias")) {
      nn::init::zeros_(parameter);
    } else if (parameter.dim() == 2) {
      nn::init::normal_(parameter, 0, config.initializer_range);
    }
  }
}

Tensor Llama::hidden_states(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) {
  return model(tokens, begin, caches);
}

Tensor Llama::logits(const Tensor& hidden) { return lm_head(hidden); }

}}}  // namespace tandem::v0::models
