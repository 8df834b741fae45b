#include <tandem/models/vision_transformer.h>

#include <cmath>
#include <string>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/init.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

// The results of the norms are only inputs of linear layers.
constexpr nn::LayerNormOptions kNormOptions = {.eps = 1e-6, .low_precision_result = true};

/// h = x + attention(norm(x)); h + mlp(norm(h)).
class EncoderBlock : public nn::Layer {
 public:
  explicit EncoderBlock(const VisionTransformerOptions& options)
      : ln_1_(add<nn::LayerNorm>("ln_1", options.hidden_dim, kNormOptions)),
        self_attention_(add<nn::MultiheadAttention>("self_attention", options.hidden_dim, options.num_heads,
                                                    {.dropout = options.attention_dropout})),
        ln_2_(add<nn::LayerNorm>("ln_2", options.hidden_dim, kNormOptions)),
        mlp_(add<nn::Sequential>("mlp")),
        dropout_(options.dropout) {
    auto& wide = mlp_.append<nn::Linear>(options.hidden_dim, options.mlp_dim);
    mlp_.append<nn::GELU>();
    mlp_.append<nn::Dropout>(options.dropout);
    auto& narrow = mlp_.append<nn::Linear>(options.mlp_dim, options.hidden_dim);
    mlp_.append<nn::Dropout>(options.dropout);
    for (const nn::Linear* linear : {&wide, &narrow}) {
      nn::init::xavier_uniform_(linear->weight);
      nn::init::normal_(linear->bias, 0, 1e-6);
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor attended = dropout(self_attention_(ln_1_(x)), dropout_, is_training());
    const auto [h, normal] = ln_2_.add_forward(x, attended);
    return h + mlp_(normal);
  }

 private:
  nn::LayerNorm& ln_1_;
  nn::MultiheadAttention& self_attention_;
  nn::LayerNorm& ln_2_;
  nn::Sequential& mlp_;
  double dropout_;
};

/// The number of tokens.
int64_t sequence_length(const VisionTransformerOptions& options) {
  TANDEM_CHECK(ValueError,
               options.patch_size >= 1 && options.image_size >= 1 && options.image_size % options.patch_size == 0,
               "VisionTransformer: image_size ", options.image_size, " is not a positive multiple of patch_size ",
               options.patch_size);
  const int64_t side = options.image_size / options.patch_size;
  return saturating_add(saturating_mul(side, side), 1);
}

}  // namespace

VisionTransformerEncoder::VisionTransformerEncoder(int64_t seq_length, const VisionTransformerOptions& options)
    : pos_embedding(add_parameter("pos_embedding", empty({1, seq_length, options.hidden_dim}))),
      layers(add<nn::Sequential>("layers")),
      ln(add<nn::LayerNorm>("ln", options.hidden_dim, kNormOptions)),
      dropout_(options.dropout) {
  nn::init::normal_(pos_embedding, 0, 0.02);
  for (int64_t i = 0; i < options.num_layers; ++i)
    layers.add<EncoderBlock>("encoder_layer_" + std::to_string(i), options);
}

Tensor VisionTransformerEncoder::forward(const Tensor& x) {
  return ln(layers(dropout(x + pos_embedding, dropout_, is_training())));
}

VisionTransformer::VisionTransformer(const VisionTransformerOptions& options)
    : class_token(add_parameter("class_token", zeros({1, 1, options.hidden_dim}))),
      conv_proj(
          add<nn::Conv2d>("conv_proj", 3, options.hidden_dim, options.patch_size, {.stride = options.patch_size})),
      encoder(add<VisionTransformerEncoder>("encoder", sequence_length(options), options)),
      heads(add<nn::Sequential>("heads")),
      image_size_(options.image_size) {
  const double fan_in = 3 * static_cast<double>(options.patch_size * options.patch_size);
  nn::init::trunc_normal_(conv_proj.weight, 0, std::sqrt(1 / fan_in));
  nn::init::zeros_(conv_proj.bias);
  const auto& head = heads.add<nn::Linear>("head", options.hidden_dim, options.num_classes);
  nn::init::zeros_(head.weight);
  nn::init::zeros_(head.bias);
}

Tensor VisionTransformer::forward(const Tensor& images) {
  TANDEM_CHECK(ShapeError, images.dim() == 4 && images.size(2) == image_size_ && images.size(3) == image_size_,
               "VisionTransformer: images is ", describe(images), ", expected [N, 3, ", image_size_, ", ", image_size_,
               "]");
  const Tensor patches = conv_proj(images).flatten(2).transpose(1, 2);  // [N, patches, hidden_dim]
  const Tensor first = class_token.expand({images.size(0), 1, class_token.size(2)});
  return heads(encoder(cat({first, patches}, 1)).select(1, 0));
}

}}}  // namespace tandem::v0::models
