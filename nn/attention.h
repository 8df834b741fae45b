// Multi-head attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Keys and values of all earlier positions, for step-by-step decoding without gradients:
///
///     nn::KeyValueCache cache(max_length);
///     const auto [keys, values] = cache.append(key, value);  // of the new positions
///     y = scaled_dot_product_attention(query, keys, values, {.is_causal = true, .query_offset = before});
///
/// Not thread-safe. Copies share the memory.
class TANDEM_API KeyValueCache {
 public:
  /// For at most `max_length` positions; the memory is allocated by the first append(). Throws ValueError unless it is
  /// at least 1.
  explicit KeyValueCache(int64_t max_length);
  /// Appends copies of key [..., T, d] and value [..., T, e]. Returns all keys [..., length(), d] and values [...,
  /// length(), e], as views of the cache. Throws ShapeError if the length would exceed max_length, or if other sizes,
  /// dtype or device differ from the cache's, and StateError if the arguments would be recorded for backward.
  std::pair<Tensor, Tensor> append(const Tensor& key, const Tensor& value);
  int64_t length() const { return length_; }  ///< number of stored positions
  void clear() { length_ = 0; }               ///< removes all positions and keeps the memory

 private:
  int64_t max_length_, length_ = 0;
  Tensor keys_, values_;
};

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  double dropout = 0;                ///< probability of dropping a weight in training mode
  bool bias = true;                  ///< all projections have a bias
  std::optional<int64_t> kdim = {};  ///< size of keys; default: embed_dim
  std::optional<int64_t> vdim = {};  ///< size of values; default: embed_dim
  bool is_causal = false;            ///< each position attends only to itself and to earlier positions
};

/// Arguments of a call of MultiheadAttention.
///
/// A bool mask is true where attention is *not* allowed, as in PyTorch's layers; in scaled_dot_product_attention true
/// means allowed. A floating mask is added to the scores. Masks of both kinds may be combined.
struct MultiheadAttentionCall {
  Tensor key_padding_mask = {};  ///< [..., S]: true for keys that are ignored
  bool need_weights = true;      ///< whether the weights are returned; they need memory for T x S numbers
  /// [T, S], [N * num_heads, T, S], or with at least four dimensions, which broadcast to [..., num_heads, T, S].
  Tensor attn_mask = {};
  bool average_attn_weights = true;  ///< whether the weights are averaged over the heads
  bool is_causal = false;            ///< as the layer's option, for one call; needs no mask
  /// Keys and values of earlier positions; the call appends its own keys and values. Query t then has position
  /// cache->length() + t for is_causal.
  KeyValueCache* cache = nullptr;
};

/// Attention of num_heads heads, batch first: query [..., T, embed_dim], key [..., S, kdim] and value [..., S, vdim] ->
/// [..., T, embed_dim]. Queries, keys and values are projected to embed_dim columns each. Every head applies
/// scaled_dot_product_attention to embed_dim / num_heads of the columns, and `out_proj` is applied to the concatenated
/// heads. A query that may attend to no key gets zeros before `out_proj`.
///
/// Names of parameters as in PyTorch's MultiheadAttention, with initial values: `in_proj_weight` [3 embed_dim,
/// embed_dim] (Xavier uniform), or if kdim or vdim is not embed_dim `q_proj_weight` [embed_dim, embed_dim],
/// `k_proj_weight` [embed_dim, kdim] and `v_proj_weight` [embed_dim, vdim] (each Xavier uniform); `in_proj_bias` [3
/// embed_dim] (zeros), `out_proj.weight` (as in Linear), `out_proj.bias` (zeros); float32. A. Vaswani et al.,
/// "Attention is all you need", 2017.
class TANDEM_API MultiheadAttention : public Layer {
 public:
  using Options = MultiheadAttentionOptions;  ///< of the constructor
  /// Throws ValueError unless all sizes are at least 1, num_heads divides embed_dim and 0 <= dropout <= 1.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options = {});
  /// Self-attention: x [..., T, embed_dim] -> [..., T, embed_dim].
  Tensor forward(const Tensor& input) override { return self_attention(input, {.need_weights = false}); }
  using Layer::operator();
  /// Self-attention with a mask, as in MultiheadAttentionCall.
  Tensor operator()(const Tensor& input, const Tensor& attn_mask);
  /// {output, weights}. The weights, after dropout, are [..., T, S] if they are averaged, otherwise [..., num_heads, T,
  /// S]; undefined unless need_weights. Runs the hooks with `query` as the input and `output` as the output. Throws
  /// ShapeError for a mask of the wrong shape.
  std::pair<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const MultiheadAttentionCall& options = {});
  std::string extra_repr() const override;

  Tensor& in_proj_weight;  ///< [3 embed_dim, embed_dim]; undefined if kdim or vdim is not embed_dim
  Tensor& q_proj_weight;   ///< [embed_dim, embed_dim]; undefined if in_proj_weight is defined
  Tensor& k_proj_weight;   ///< [embed_dim, kdim]; undefined if in_proj_weight is defined
  Tensor& v_proj_weight;   ///< [embed_dim, vdim]; undefined if in_proj_weight is defined
  Tensor& in_proj_bias;    ///< [3 embed_dim]; undefined without bias
  Linear& out_proj;        ///< joins the heads

 private:
  Tensor self_attention(const Tensor& input, const MultiheadAttentionCall& options);
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const MultiheadAttentionCall& options,
                Tensor* weights);
  /// Part `part` of the projections, [..., num_heads, T, embed_dim / num_heads].
  Tensor project(const Tensor& input, int part, const Tensor& weight) const;

  int64_t embed_dim_, num_heads_;
  MultiheadAttentionOptions options_;
};

}}}  // namespace tandem::v0::nn
