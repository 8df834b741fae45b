// Llama, H. Touvron et al., "LLaMA: Open and efficient foundation language models", 2023, and "Llama 2: Open foundation
// and fine-tuned chat models", 2023.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/models/causal_language_model.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/nn/module_list.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/attention.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of Llama, with the names and defaults of transformers' LlamaConfig; by default those of a model of 7 billion
/// parameters.
struct LlamaConfig {
  int64_t vocab_size = 32000;                       ///< number of tokens
  int64_t hidden_size = 4096;                       ///< width of the hidden states
  int64_t intermediate_size = 11008;                ///< hidden units of the MLPs
  int64_t num_hidden_layers = 32;                   ///< number of layers
  int64_t num_attention_heads = 32;                 ///< heads of queries
  std::optional<int64_t> num_key_value_heads = {};  ///< heads of keys and values; default: num_attention_heads
  std::optional<int64_t> head_dim = {};             ///< even; default: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;           ///< longest sequence
  double rms_norm_eps = 1e-6;                       ///< added to means of squares
  double rope_theta = 10000;                        ///< base of the rotary frequencies, without scaling
  bool tie_word_embeddings = false;                 ///< the head's weight is the token embedding
  bool attention_bias = false;                      ///< the projections of the attention have a bias
  bool mlp_bias = false;                            ///< the linear layers of the MLPs have a bias
  double attention_dropout = 0;                     ///< probability of dropout of attention weights
  double initializer_range = 0.02;                  ///< standard deviation of initial weights
};

/// Causal self-attention with rotary position embeddings and grouped heads: x [N, T, hidden_size] -> the same shape.
class TANDEM_API LlamaAttention : public nn::Module {
 public:
  /// Throws ValueError unless num_key_value_heads divides num_attention_heads and, without head_dim,
  /// num_attention_heads divides hidden_size.
  explicit LlamaAttention(const LlamaConfig& config);
  /// `tables`: angles of the positions of x. A cache is extended; null: none.
  Tensor operator()(const Tensor& x, const RotaryTables& tables, nn::KeyValueCache* cache);

  nn::Linear& q_proj;  ///< queries
  nn::Linear& k_proj;  ///< keys
  nn::Linear& v_proj;  ///< values
  nn::Linear& o_proj;  ///< joins the heads

 private:
  int64_t head_dim_;
  double attention_dropout_;
};

/// down_proj(silu(gate_proj(x)) * up_proj(x)). N. Shazeer, "GLU variants improve transformer", 2020.
class TANDEM_API LlamaMlp : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit LlamaMlp(const LlamaConfig& config);
  Tensor forward(const Tensor& x) override;

  nn::Linear& gate_proj;  ///< to intermediate_size, with SiLU
  nn::Linear& up_proj;    ///< to intermediate_size
  nn::Linear& down_proj;  ///< back to hidden_size
};

/// h = x + self_attn(input_layernorm(x)); h + mlp(post_attention_layernorm(h)).
class TANDEM_API LlamaDecoderLayer : public nn::Module {
 public:
  /// Throws as LlamaAttention and LlamaMlp.
  explicit LlamaDecoderLayer(const LlamaConfig& config);
  /// `tables`: angles of the positions of x. A cache is extended; null: none.
  Tensor operator()(const Tensor& x, const RotaryTables& tables, nn::KeyValueCache* cache);

  LlamaAttention& self_attn;              ///< the first branch
  LlamaMlp& mlp;                          ///< the second branch
  nn::RMSNorm& input_layernorm;           ///< before the attention
  nn::RMSNorm& post_attention_layernorm;  ///< before the MLP
};

/// Llama without its head: embeddings, layers and a norm.
///
/// The tables of the rotary embeddings are buffers that state_dict() does not contain; to(dtype) rounds them.
class TANDEM_API LlamaModel : public nn::Module {
 public:
  /// Throws ValueError as LlamaDecoderLayer, and unless vocab_size and max_position_embeddings are at least 1.
  explicit LlamaModel(const LlamaConfig& config);
  /// tokens int64 [N, T], the first of which has position `begin` -> hidden states [N, T, hidden_size]. The caches, one
  /// per layer, are extended; null: no caches.
  Tensor operator()(const Tensor& tokens, int64_t begin = 0, std::vector<nn::KeyValueCache>* caches = nullptr);

  nn::Embedding& embed_tokens;                ///< of tokens
  nn::ModuleList<LlamaDecoderLayer>& layers;  ///< the layers
  nn::RMSNorm& norm;                          ///< after the last layer

 private:
  Tensor& cos_;  ///< [max_position_embeddings, head_dim / 2]
  Tensor& sin_;  ///< of the same shape
};

/// A decoder with root-mean-square norms, rotary position embeddings, grouped heads and SwiGLU: tokens int64 [N, T], T
/// <= max_position_embeddings -> logits [N, T, vocab_size].
///
/// Keys and shapes as in transformers' LlamaForCausalLM: model.embed_tokens.weight,
/// model.layers.0.self_attn.q_proj.weight .. model.norm.weight, lm_head.weight. Initial values as there: weights normal
/// with standard deviation initializer_range, biases zeros, norms ones.
class TANDEM_API Llama : public CausalLanguageModel {
 public:
  /// Throws ValueError as LlamaModel.
  explicit Llama(const LlamaConfig& config = {});

  const LlamaConfig& config() const { return config_; }  ///< as given to the constructor

  LlamaModel& model;           ///< tokens to hidden states
  LanguageModelHead& lm_head;  ///< hidden states to logits

 protected:
  Tensor hidden_states(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) override;
  Tensor logits(const Tensor& hidden) override;

 private:
  LlamaConfig config_;
};

}}}  // namespace tandem::v0::models
