// Multi-head attention.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  bool bias = true;        ///< both projections have a bias
  bool is_causal = false;  ///< each position attends only to itself and to earlier positions
};

/// Self-attention: x [..., T, embed_dim] -> [..., T, embed_dim], batch first. Queries, keys and values are the three
/// parts of x in_proj_weight^T + in_proj_bias. Each of the num_heads heads applies scaled_dot_product_attention to
/// embed_dim / num_heads of their columns, and `out_proj` is applied to the concatenated heads.
///
/// Names of parameters as in PyTorch's MultiheadAttention, with initial values: `in_proj_weight` [3 embed_dim,
/// embed_dim] (Xavier uniform), `in_proj_bias` [3 embed_dim] (zeros), `out_proj.weight` (as in Linear), `out_proj.bias`
/// (zeros); float32. A. Vaswani et al., "Attention is all you need", 2017.
class TANDEM_API MultiheadAttention : public Layer {
 public:
  /// Throws ValueError unless both sizes are at least 1 and num_heads divides embed_dim.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options = {});
  Tensor forward(const Tensor& input) override { return attend(input, {}); }
  using Layer::operator();
  /// Applies a mask that broadcasts to the scores [..., num_heads, T, T]: bool (true: the query of the row may attend
  /// to the key of the column), or floating-point (added to the scores).
  Tensor operator()(const Tensor& input, const Tensor& attn_mask);
  std::string extra_repr() const override;

  Tensor& in_proj_weight;  ///< [3 embed_dim, embed_dim]
  Tensor& in_proj_bias;    ///< [3 embed_dim]; undefined without bias
  Linear& out_proj;        ///< joins the heads

 private:
  Tensor attend(const Tensor& input, const Tensor& attn_mask);

  int64_t num_heads_;
  bool is_causal_;
};

}}}  // namespace tandem::v0::nn
