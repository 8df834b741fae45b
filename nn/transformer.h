// Transformer layers (A. Vaswani et al., "Attention is all you need", 2017).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module_list.h>
#include <tandem/nn/norm.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of TransformerEncoderLayer and TransformerDecoderLayer.
struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;             ///< width between the two linear layers
  double dropout = 0.1;                       ///< of weights, of hidden units and of each branch
  Activation activation = Activation::kRelu;  ///< between the two linear layers
  double layer_norm_eps = 1e-5;               ///< added to variances
  bool norm_first = false;                    ///< x + branch(norm(x)) instead of norm(x + branch(x))
  bool bias = true;                           ///< linear layers, projections and norms have a bias
};

/// Arguments of a call of TransformerEncoderLayer and TransformerEncoder; in bool masks true means not allowed, as in
/// MultiheadAttention.
struct TransformerEncoderCall {
  Tensor src_mask = {};              ///< attn_mask of the self-attention
  Tensor src_key_padding_mask = {};  ///< positions of src that are ignored
  bool is_causal = false;            ///< positions attend only to earlier ones; needs no mask
};

/// Arguments of a call of TransformerDecoderLayer and TransformerDecoder.
struct TransformerDecoderCall {
  Tensor tgt_mask = {};                 ///< attn_mask of the self-attention
  Tensor memory_mask = {};              ///< attn_mask of the attention to memory
  Tensor tgt_key_padding_mask = {};     ///< positions of tgt that are ignored
  Tensor memory_key_padding_mask = {};  ///< positions of memory that are ignored
  bool tgt_is_causal = false;           ///< positions of tgt attend only to earlier ones; needs no mask
  bool memory_is_causal = false;        ///< position t attends to positions up to t of memory; needs no mask
};

/// Self-attention and two linear layers, each a branch with dropout, a residual connection and a norm: src [..., T,
/// d_model] -> the same shape, batch first.
///
/// Names of parameters as in PyTorch: `self_attn.*`, `linear1.*`, `linear2.*`, `norm1.*`, `norm2.*`, with the initial
/// values of these layers.
class TANDEM_API TransformerEncoderLayer : public Layer {
 public:
  using Options = TransformerLayerOptions;  ///< of the constructor
  /// Throws the errors of its layers.
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  Tensor forward(const Tensor& src) override { return encode(src, {}, nullptr); }
  using Layer::operator();
  /// With masks. With a cache, the positions of src follow those of the cache, which is extended.
  Tensor operator()(const Tensor& src, const TransformerEncoderCall& options, KeyValueCache* cache = nullptr);
  std::string extra_repr() const override;

  MultiheadAttention& self_attn;  ///< the first branch
  Linear& linear1;                ///< second branch: widens, with the activation
  Linear& linear2;                ///< second branch: narrows
  LayerNorm& norm1;               ///< of the first branch
  LayerNorm& norm2;               ///< of the second branch

 private:
  Tensor encode(const Tensor& src, const TransformerEncoderCall& options, KeyValueCache* cache);

  TransformerLayerOptions options_;
};

/// Self-attention of tgt [..., T, d_model], attention to memory [..., S, d_model] and two linear layers, each a branch
/// with dropout, a residual connection and a norm -> [..., T, d_model], batch first.
///
/// Names of parameters as in PyTorch: `self_attn.*`, `multihead_attn.*`, `linear1.*`, `linear2.*`, `norm1.*`,
/// `norm2.*`, `norm3.*`, with the initial values of these layers.
class TANDEM_API TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;  ///< of the constructor
  /// Throws the errors of its layers.
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  /// The output of the layer. With a cache, the positions of tgt follow those of the cache, which is extended.
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& options = {},
                    KeyValueCache* cache = nullptr);
  std::string extra_repr() const override;

  MultiheadAttention& self_attn;       ///< the first branch
  MultiheadAttention& multihead_attn;  ///< the second branch: attention to memory
  Linear& linear1;                     ///< third branch: widens, with the activation
  Linear& linear2;                     ///< third branch: narrows
  LayerNorm& norm1;                    ///< of the first branch
  LayerNorm& norm2;                    ///< of the second branch
  LayerNorm& norm3;                    ///< of the third branch

 private:
  TransformerLayerOptions options_;
};

/// Options of TransformerEncoder and TransformerDecoder.
struct TransformerOptions {
  TransformerLayerOptions layer = {};  ///< of each layer
  bool norm = false;                   ///< a LayerNorm `norm` after the last layer
};

/// A stack of `num_layers` TransformerEncoderLayers, named `layers.0` and so on, and an optional norm, `norm`. Each
/// layer has its own initial values; PyTorch's layers start as copies of one layer.
class TANDEM_API TransformerEncoder : public Layer {
 public:
  using Options = TransformerOptions;  ///< of the constructor
  /// Throws ValueError unless num_layers is at least 1, and as the layers.
  TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerOptions options = {});
  Tensor forward(const Tensor& src) override { return encode(src, {}, nullptr); }
  using Layer::operator();
  /// With masks. With caches, one for each layer, the positions of src follow those of the caches, which are extended.
  /// Throws ValueError for another number of caches.
  Tensor operator()(const Tensor& src, const TransformerEncoderCall& options,
                    std::vector<KeyValueCache>* caches = nullptr);

  ModuleList<TransformerEncoderLayer>& layers;  ///< the layers, in order
  LayerNorm* norm = nullptr;                    ///< the norm after the last layer; null without

 private:
  Tensor encode(const Tensor& src, const TransformerEncoderCall& options, std::vector<KeyValueCache>* caches);
};

/// A stack of `num_layers` TransformerDecoderLayers, as TransformerEncoder.
class TANDEM_API TransformerDecoder : public Module {
 public:
  using Options = TransformerOptions;  ///< of the constructor
  /// Throws ValueError unless num_layers is at least 1, and as the layers.
  TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerOptions options = {});
  /// The output of the last layer, or of the norm. Caches are as in TransformerEncoder.
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& options = {},
                    std::vector<KeyValueCache>* caches = nullptr);

  ModuleList<TransformerDecoderLayer>& layers;  ///< the layers, in order
  LayerNorm* norm = nullptr;                    ///< the norm after the last layer; null without
};

}}}  // namespace tandem::v0::nn
