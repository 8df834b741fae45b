// Attention of several heads.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  bool bias = true;        ///< of both projections
  bool is_causal = false;  ///< a position looks at itself and at those before it only
};

/// Self attention of x [..., T, embed_dim], batch first: heads of embed_dim / num_heads values each, whose queries, keys
/// and values are parts of x in_proj_weight^T + in_proj_bias, go through scaled_dot_product_attention; `out_proj` joins
/// them -> [..., T, embed_dim].
///
/// Keys are those of PyTorch's MultiheadAttention: `in_proj_weight` [3 embed_dim, embed_dim] (queries, keys, values;
/// begins xavier uniform) and `in_proj_bias` [3 embed_dim] (zeros), out_proj.weight (begins as Linear's) and
/// out_proj.bias (zeros); float32.  A. Vaswani et al., "Attention is all you need", 2017.
class TANDEM_API MultiheadAttention : public Layer {
 public:
  /// Throws ValueError unless both sizes are at least 1 and num_heads divides embed_dim.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options = {});
  Tensor forward(const Tensor& input) override { return attend(input, {}); }
  using Layer::operator();
  /// With a mask that broadcasts to the scores [..., num_heads, T, T]: bool, true where a position (row) may look at
  /// another (column), or floating, added to the scores.
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
