// GPT: a decoder-only transformer.
#pragma once

#include <tandem/tandem.h>

#include <cmath>
#include <string>

namespace models {

struct GptOptions {
  int64_t vocabulary = 0;  ///< number of tokens
  int64_t context = 128;   ///< longest sequence
  int64_t layers = 4;
  int64_t heads = 4;  ///< divides width
  int64_t width = 128;
  double dropout = 0;  ///< probability, after the embeddings and after each branch
};

/// Of norms whose results are only inputs of linear layers.
inline constexpr tandem::nn::LayerNormOptions kNormOptions = {.low_precision_result = true};

/// Causal multi-head self-attention: x [N, T, width] -> [N, T, width].
struct CausalAttention : tandem::nn::Layer {
  explicit CausalAttention(const GptOptions& o)
      : c_attn(add<tandem::nn::Linear>("c_attn", o.width, 3 * o.width)),
        c_proj(add<tandem::nn::Linear>("c_proj", o.width, o.width)),
        heads(o.heads) {}

  tandem::Tensor forward(const tandem::Tensor& x) override {
    return c_proj(tandem::qkv_attention(c_attn(x), heads, {.is_causal = true}));
  }

  tandem::nn::Linear& c_attn;  ///< projections to query, key and value in one layer
  tandem::nn::Linear& c_proj;
  int64_t heads;
};

/// MLP: x [.., width] -> [.., width] with 4 width hidden units and tanh-approximated GELU.
struct GptMlp : tandem::nn::Layer {
  explicit GptMlp(const GptOptions& o)
      : c_fc(add<tandem::nn::Linear>("c_fc", o.width, 4 * o.width)),
        c_proj(add<tandem::nn::Linear>("c_proj", 4 * o.width, o.width)) {}

  tandem::Tensor forward(const tandem::Tensor& x) override {
    return c_proj(tandem::gelu(c_fc(x), tandem::GeluApproximation::kTanh));
  }

  tandem::nn::Linear& c_fc;
  tandem::nn::Linear& c_proj;
};

/// Pre-norm transformer block: h = x + attention(norm(x)); h + mlp(norm(h)).
struct GptBlock : tandem::nn::Layer {
  explicit GptBlock(const GptOptions& o)
      : ln_1(add<tandem::nn::LayerNorm>("ln_1", o.width, kNormOptions)),
        attn(add<CausalAttention>("attn", o)),
        ln_2(add<tandem::nn::LayerNorm>("ln_2", o.width, kNormOptions)),
        mlp(add<GptMlp>("mlp", o)),
        drop(add<tandem::nn::Dropout>("drop", o.dropout)) {}

  tandem::Tensor forward(const tandem::Tensor& x) override {
    const auto [h, normal] = ln_2.add_forward(x, drop(attn(ln_1(x))));
    return h + drop(mlp(normal));
  }

  tandem::nn::LayerNorm& ln_1;
  CausalAttention& attn;
  tandem::nn::LayerNorm& ln_2;
  GptMlp& mlp;
  tandem::nn::Dropout& drop;
};

/// tokens int64 [N, T], T <= context -> logits [N, T, vocabulary]: token and position embeddings, the blocks, a norm,
/// and a linear head, whose weight is tied to the token embedding.
///
/// Keys: wte.weight, wpe.weight, h.0.ln_1.weight .. h.0.attn.c_attn.weight .. h.0.mlp.c_proj.bias .. ln_f.bias and
/// lm_head.weight, which is tied to wte.weight; weights of linear layers are [out, in].
///
/// Initial values as in GPT-2: weights normal with deviation 0.02, or 0.02 / sqrt(2 layers) for the two c_proj layers
/// of each block, whose results are added to the residual stream; biases 0. A. Radford et al., "Language models are
/// unsupervised multitask learners", 2019.
struct Gpt : tandem::nn::Layer {
  explicit Gpt(const GptOptions& o)
      : options(o),
        wte(add<tandem::nn::Embedding>("wte", o.vocabulary, o.width)),
        wpe(add<tandem::nn::Embedding>("wpe", o.context, o.width)),
        drop(add<tandem::nn::Dropout>("drop", o.dropout)),
        h(add<tandem::nn::Sequential>("h")),
        ln_f(add<tandem::nn::LayerNorm>("ln_f", o.width, kNormOptions)),
        lm_head(add<Head>("lm_head", wte.weight)) {
    TANDEM_CHECK(ValueError, o.width % o.heads == 0, "Gpt: width ", o.width, " is not a multiple of heads ", o.heads);
    for (int64_t i = 0; i < o.layers; ++i) h.append<GptBlock>(o);
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers));
    for (const auto& [name, parameter] : named_parameters()) {
      if (name.ends_with(".bias")) {
        tandem::nn::init::zeros_(parameter);
      } else if (parameter.dim() == 2) {
        tandem::nn::init::normal_(parameter, 0, name.ends_with(".c_proj.weight") ? residual : 0.02);
      }
    }
  }

  tandem::Tensor forward(const tandem::Tensor& tokens) override {
    const tandem::Tensor positions = tandem::arange(0, tokens.size(1), 1, tokens.device());
    return lm_head(ln_f(h(drop(wte(tokens) + wpe(positions)))));
  }

  /// A linear layer without bias whose weight is tied to a parameter of another layer.
  struct Head : tandem::nn::Layer {
    explicit Head(const tandem::Tensor& tied) : weight(add_parameter("weight", tied)) {}
    tandem::Tensor forward(const tandem::Tensor& x) override { return tandem::linear(x, weight); }
    tandem::Tensor& weight;
  };

  GptOptions options;
  tandem::nn::Embedding& wte;
  tandem::nn::Embedding& wpe;
  tandem::nn::Dropout& drop;
  tandem::nn::Sequential& h;
  tandem::nn::LayerNorm& ln_f;
  Head& lm_head;
};

}  // namespace models
