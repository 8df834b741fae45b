// GPT-2, A. Radford et al., "Language models are unsupervised multitask learners", 2019.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/models/causal_language_model.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/nn/module_list.h>
#include <tandem/nn/norm.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of Gpt2, with the names and defaults of transformers' GPT2Config; by default those of the small GPT-2.
struct Gpt2Config {
  int64_t vocab_size = 50257;           ///< number of tokens
  int64_t n_positions = 1024;           ///< longest sequence
  int64_t n_embd = 768;                 ///< width of the hidden states
  int64_t n_layer = 12;                 ///< number of blocks
  int64_t n_head = 12;                  ///< attention heads; divides n_embd
  std::optional<int64_t> n_inner = {};  ///< hidden units of the MLPs; default: 4 n_embd
  double resid_pdrop = 0.1;             ///< probability of dropout after each branch of a block
  double embd_pdrop = 0.1;              ///< probability of dropout after the embeddings
  double attn_pdrop = 0.1;              ///< probability of dropout of attention weights
  double layer_norm_epsilon = 1e-5;     ///< added to variances
  double initializer_range = 0.02;      ///< standard deviation of initial weights

  static Gpt2Config small() { return {}; }  ///< "gpt2": 124 million parameters
  /// "gpt2-medium": 355 million parameters.
  static Gpt2Config medium() { return {.n_embd = 1024, .n_layer = 24, .n_head = 16}; }
  /// "gpt2-large": 774 million parameters.
  static Gpt2Config large() { return {.n_embd = 1280, .n_layer = 36, .n_head = 20}; }
  /// "gpt2-xl": 1558 million parameters.
  static Gpt2Config xl() { return {.n_embd = 1600, .n_layer = 48, .n_head = 25}; }
};

/// Reads the file config.json of transformers' GPT2LMHeadModel; missing settings get their defaults. Throws IoError,
/// with the path, if the file cannot be read or is not a JSON object with model_type "gpt2" and settings of the right
/// types; ValueError for settings that Gpt2 does not support, for example another activation_function.
TANDEM_API Gpt2Config read_gpt2_config(const std::string& path);

/// Causal multi-head self-attention: x [N, T, n_embd] -> [N, T, n_embd].
class TANDEM_API Gpt2Attention : public nn::Layer {
 public:
  /// Throws ValueError unless n_head divides n_embd.
  explicit Gpt2Attention(const Gpt2Config& config);
  Tensor forward(const Tensor& x) override { return attend(x, nullptr); }
  using Layer::operator();
  /// For positions that follow those of the cache, which is extended; without a cache if it is null.
  Tensor operator()(const Tensor& x, nn::KeyValueCache* cache);

  nn::Linear& c_attn;  ///< projections to query, key and value in one layer
  nn::Linear& c_proj;  ///< joins the heads

 private:
  Tensor attend(const Tensor& x, nn::KeyValueCache* cache);

  int64_t n_head_;
  double attn_pdrop_, resid_pdrop_;
};

/// Two linear layers with tanh-approximated GELU between them: x [..., n_embd] -> [..., n_embd].
class TANDEM_API Gpt2Mlp : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit Gpt2Mlp(const Gpt2Config& config);
  Tensor forward(const Tensor& x) override;

  nn::Linear& c_fc;    ///< to the hidden units, with GELU
  nn::Linear& c_proj;  ///< back to n_embd

 private:
  double resid_pdrop_;
};

/// Pre-norm transformer block: h = x + attn(ln_1(x)); h + mlp(ln_2(h)).
class TANDEM_API Gpt2Block : public nn::Layer {
 public:
  /// Throws as Gpt2Attention and Gpt2Mlp.
  explicit Gpt2Block(const Gpt2Config& config);
  Tensor forward(const Tensor& x) override { return run(x, nullptr); }
  using Layer::operator();
  /// For positions that follow those of the cache, which is extended; without a cache if it is null.
  Tensor operator()(const Tensor& x, nn::KeyValueCache* cache);

  nn::LayerNorm& ln_1;  ///< before the attention
  Gpt2Attention& attn;  ///< the first branch
  nn::LayerNorm& ln_2;  ///< before the MLP
  Gpt2Mlp& mlp;         ///< the second branch

 private:
  Tensor run(const Tensor& x, nn::KeyValueCache* cache);
};

/// Gpt2 without its head: embeddings, blocks and a norm.
class TANDEM_API Gpt2Model : public nn::Module {
 public:
  /// Throws ValueError as Gpt2Block, and unless vocab_size and n_positions are at least 1.
  explicit Gpt2Model(const Gpt2Config& config);
  /// tokens int64 [N, T], the first of which has position `begin` -> hidden states [N, T, n_embd]. The caches, one per
  /// block, are extended; null: no caches.
  Tensor operator()(const Tensor& tokens, int64_t begin = 0, std::vector<nn::KeyValueCache>* caches = nullptr);

  nn::Embedding& wte;            ///< of tokens
  nn::Embedding& wpe;            ///< of positions
  nn::ModuleList<Gpt2Block>& h;  ///< the blocks
  nn::LayerNorm& ln_f;           ///< after the last block

 private:
  double embd_pdrop_;
};

/// GPT-2 with its language model head: tokens int64 [N, T], T <= n_positions -> logits [N, T, vocab_size]. Token and
/// position embeddings, blocks, a norm, and a linear head, whose weight is tied to the token embedding.
///
/// Keys as in transformers' GPT2LMHeadModel: transformer.wte.weight, transformer.h.0.attn.c_attn.weight ..
/// transformer.ln_f.bias, lm_head.weight. The weights of c_attn, c_fc and c_proj are [out, in] as in nn::Linear, for
/// speed; transformers stores them as [in, out] (its Conv1D). load_transformers_state_dict() and
/// transformers_state_dict() convert.
///
/// Initial values as in transformers: weights normal with standard deviation initializer_range, divided by
/// sqrt(2 n_layer) for the two c_proj of each block, whose results are added to the residual stream; biases zeros.
class TANDEM_API Gpt2 : public CausalLanguageModel {
 public:
  /// Throws ValueError as Gpt2Model.
  explicit Gpt2(const Gpt2Config& config = {});

  /// Loads a model from a folder of transformers: the settings from config.json (read_gpt2_config), the weights from
  /// model.safetensors or from several files with an index (io::load_pretrained). Throws the errors of these functions
  /// and of load_transformers_state_dict(), and IoError, before the model is built, if it has more than twice as many
  /// parameters as the weights.
  static std::unique_ptr<Gpt2> from_pretrained(const std::string& folder);

  /// state_dict() with the names and shapes of transformers' GPT2LMHeadModel. The tensors share memory with the model;
  /// the weights of transformers' Conv1D layers are transposed views of the model's weights.
  State transformers_state_dict() const;
  /// Copies weights of transformers' GPT2LMHeadModel or GPT2Model (names without "transformer.", as in the published
  /// files), of any floating dtype, for example those of io::load_pretrained. Attention masks, which older files
  /// contain, are ignored. Throws StateError, changing nothing, if weights are missing or unexpected, or do not have
  /// the shapes of transformers_state_dict().
  nn::LoadReport load_transformers_state_dict(const std::vector<std::pair<std::string, Tensor>>& tensors);

  const Gpt2Config& config() const { return config_; }  ///< as given to the constructor

  Gpt2Model& transformer;      ///< tokens to hidden states
  LanguageModelHead& lm_head;  ///< hidden states to logits

 protected:
  Tensor hidden_states(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) override;
  Tensor logits(const Tensor& hidden) override;

 private:
  Gpt2Config config_;
};

}}}  // namespace tandem::v0::models
