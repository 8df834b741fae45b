#include <tandem/nn/transformer.h>

#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return {.dropout = options.dropout, .bias = options.bias};
}

LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return {.eps = options.layer_norm_eps, .bias = options.bias};
}

/// The first linear layer includes the activation.
LinearOptions linear1_options(const TransformerLayerOptions& options) {
  return {.bias = options.bias, .activation = options.activation};
}

/// x with the branch added, before or after the norm.
template <class Branch>
Tensor add_branch(const Tensor& x, LayerNorm& norm, const TransformerLayerOptions& options, bool is_training,
                  const Branch& branch) {
  const Tensor added = dropout(branch(options.norm_first ? norm(x) : x), options.dropout, is_training);
  return options.norm_first ? add(x, added) : norm(add(x, added));
}

/// The two linear layers.
Tensor feed_forward(const Tensor& x, Linear& linear1, Linear& linear2, const TransformerLayerOptions& options,
                    bool is_training) {
  return linear2(dropout(linear1(x), options.dropout, is_training));
}

std::string layer_text(int64_t dim_feedforward, const TransformerLayerOptions& options) {
  return str("feedforward ", dim_feedforward, ", dropout ", options.dropout,
             options.activation == Activation::kRelu ? "" : activation_text(options.activation),
             options.norm_first ? ", norm first" : "");
}

int64_t checked_layers(const char* name, int64_t num_layers) {
  TANDEM_CHECK(ValueError, num_layers >= 1, name, ": num_layers is ", num_layers, ", expected at least 1");
  return num_layers;
}

/// The cache of layer i; null without caches.
KeyValueCache* cache_of(const char* name, std::vector<KeyValueCache>* caches, int64_t i, int64_t num_layers) {
  if (caches == nullptr) return nullptr;
  TANDEM_CHECK(ValueError, static_cast<int64_t>(caches->size()) == num_layers, name, ": ", caches->size(),
               " caches for ", num_layers, " layers; pass one for each layer");
  return &(*caches)[static_cast<size_t>(i)];
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options)
    : self_attn(add<MultiheadAttention>("self_attn", d_model, nhead, attention_options(options))),
      linear1(add<Linear>("linear1", d_model, options.dim_feedforward, linear1_options(options))),
      linear2(add<Linear>("linear2", options.dim_feedforward, d_model, LinearOptions{.bias = options.bias})),
      norm1(add<LayerNorm>("norm1", d_model, norm_options(options))),
      norm2(add<LayerNorm>("norm2", d_model, norm_options(options))),
      options_(options) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& src, const TransformerEncoderCall& options,
                                           KeyValueCache* cache) {
  return call(src, [&](const Tensor& x) { return encode(x, options, cache); });
}

Tensor TransformerEncoderLayer::encode(const Tensor& src, const TransformerEncoderCall& options, KeyValueCache* cache) {
  const MultiheadAttentionCall attention = {.key_padding_mask = options.src_key_padding_mask,
                                            .need_weights = false,
                                            .attn_mask = options.src_mask,
                                            .is_causal = options.is_causal,
                                            .cache = cache};
  const Tensor x = add_branch(src, norm1, options_, is_training(),
                              [&](const Tensor& y) { return self_attn(y, y, y, attention).first; });
  return add_branch(x, norm2, options_, is_training(),
                    [&](const Tensor& y) { return feed_forward(y, linear1, linear2, options_, is_training()); });
}

std::string TransformerEncoderLayer::extra_repr() const { return layer_text(linear1.weight.size(0), options_); }

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options)
    : self_attn(add<MultiheadAttention>("self_attn", d_model, nhead, attention_options(options))),
      multihead_attn(add<MultiheadAttention>("multihead_attn", d_model, nhead, attention_options(options))),
      linear1(add<Linear>("linear1", d_model, options.dim_feedforward, linear1_options(options))),
      linear2(add<Linear>("linear2", options.dim_feedforward, d_model, LinearOptions{.bias = options.bias})),
      norm1(add<LayerNorm>("norm1", d_model, norm_options(options))),
      norm2(add<LayerNorm>("norm2", d_model, norm_options(options))),
      norm3(add<LayerNorm>("norm3", d_model, norm_options(options))),
      options_(options) {}

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory,
                                           const TransformerDecoderCall& options, KeyValueCache* cache) {
  const ModuleScope scope(*this);
  const MultiheadAttentionCall to_tgt = {.key_padding_mask = options.tgt_key_padding_mask,
                                         .need_weights = false,
                                         .attn_mask = options.tgt_mask,
                                         .is_causal = options.tgt_is_causal,
                                         .cache = cache};
  const MultiheadAttentionCall to_memory = {.key_padding_mask = options.memory_key_padding_mask,
                                            .need_weights = false,
                                            .attn_mask = options.memory_mask,
                                            .is_causal = options.memory_is_causal};
  Tensor x = add_branch(tgt, norm1, options_, is_training(),
                        [&](const Tensor& y) { return self_attn(y, y, y, to_tgt).first; });
  x = add_branch(x, norm2, options_, is_training(),
                 [&](const Tensor& y) { return multihead_attn(y, memory, memory, to_memory).first; });
  return add_branch(x, norm3, options_, is_training(),
                    [&](const Tensor& y) { return feed_forward(y, linear1, linear2, options_, is_training()); });
}

std::string TransformerDecoderLayer::extra_repr() const { return layer_text(linear1.weight.size(0), options_); }

TransformerEncoder::TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerOptions options)
    : layers(add<ModuleList<TransformerEncoderLayer>>("layers")) {
  for (int64_t i = checked_layers("TransformerEncoder", num_layers); i > 0; --i) {
    layers.append<TransformerEncoderLayer>(d_model, nhead, options.layer);
  }
  if (options.norm) norm = &add<LayerNorm>("norm", d_model, norm_options(options.layer));
}

Tensor TransformerEncoder::operator()(const Tensor& src, const TransformerEncoderCall& options,
                                      std::vector<KeyValueCache>* caches) {
  return call(src, [&](const Tensor& x) { return encode(x, options, caches); });
}

Tensor TransformerEncoder::encode(const Tensor& src, const TransformerEncoderCall& options,
                                  std::vector<KeyValueCache>* caches) {
  Tensor x = src;
  for (int64_t i = 0; i < layers.size(); ++i) {
    x = layers[i](x, options, cache_of("TransformerEncoder", caches, i, layers.size()));
  }
  return norm == nullptr ? x : (*norm)(x);
}

TransformerDecoder::TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerOptions options)
    : layers(add<ModuleList<TransformerDecoderLayer>>("layers")) {
  for (int64_t i = checked_layers("TransformerDecoder", num_layers); i > 0; --i) {
    layers.append<TransformerDecoderLayer>(d_model, nhead, options.layer);
  }
  if (options.norm) norm = &add<LayerNorm>("norm", d_model, norm_options(options.layer));
}

Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& options,
                                      std::vector<KeyValueCache>* caches) {
  const ModuleScope scope(*this);
  Tensor x = tgt;
  for (int64_t i = 0; i < layers.size(); ++i) {
    x = layers[i](x, memory, options, cache_of("TransformerDecoder", caches, i, layers.size()));
  }
  return norm == nullptr ? x : (*norm)(x);
}

}}}  // namespace tandem::v0::nn
