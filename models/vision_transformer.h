// Vision transformers, A. Dosovitskiy et al., "An image is worth 16x16 words: Transformers for image recognition at
// scale", ICLR 2021.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/module.h>
#include <tandem/nn/norm.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// Options of VisionTransformer, with torchvision's names; by default those of vit_b_16.
struct VisionTransformerOptions {
  int64_t image_size = 224;      ///< height and width of the images, a multiple of patch_size
  int64_t patch_size = 16;       ///< height and width of the patches
  int64_t num_layers = 12;       ///< number of transformer blocks
  int64_t num_heads = 12;        ///< attention heads; divides hidden_dim
  int64_t hidden_dim = 768;      ///< width of the tokens
  int64_t mlp_dim = 3072;        ///< width between the two linear layers of a block
  double dropout = 0;            ///< probability, after the embeddings and the layers of each block
  double attention_dropout = 0;  ///< probability, of attention weights
  int64_t num_classes = 1000;    ///< number of logits

  static VisionTransformerOptions vit_b_16() { return {}; }                  ///< 87 million parameters
  static VisionTransformerOptions vit_b_32() { return {.patch_size = 32}; }  ///< 88 million parameters
  /// 304 million parameters.
  static VisionTransformerOptions vit_l_16() {
    return {.num_layers = 24, .num_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096};
  }
  /// 306 million parameters.
  static VisionTransformerOptions vit_l_32() {
    return {.patch_size = 32, .num_layers = 24, .num_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096};
  }
  /// 632 million parameters.
  static VisionTransformerOptions vit_h_14() {
    return {.patch_size = 14, .num_layers = 32, .num_heads = 16, .hidden_dim = 1280, .mlp_dim = 5120};
  }
};

/// The blocks of VisionTransformer: x [N, T, hidden_dim] -> [N, T, hidden_dim].
class TANDEM_API VisionTransformerEncoder : public nn::Layer {
 public:
  /// `seq_length`: T. Throws ValueError as VisionTransformer.
  VisionTransformerEncoder(int64_t seq_length, const VisionTransformerOptions& options);
  Tensor forward(const Tensor& x) override;

  Tensor& pos_embedding;   ///< [1, T, hidden_dim], added to the tokens
  nn::Sequential& layers;  ///< the blocks `encoder_layer_0`, `encoder_layer_1`, ...
  nn::LayerNorm& ln;       ///< after the last block

 private:
  double dropout_;
};

/// images [N, 3, image_size, image_size] -> logits [N, num_classes]. A convolution projects each patch to a token. A
/// class token is prepended, and position embeddings are added. Pre-norm transformer blocks with exact GELU follow,
/// then a linear layer on the class token.
///
/// Keys as in torchvision's vit_b_16: class_token, conv_proj.weight, encoder.pos_embedding,
/// encoder.layers.encoder_layer_0.self_attention.in_proj_weight .. heads.head.bias. Initial values as in torchvision:
/// conv_proj truncated normal with standard deviation 1 / sqrt(fan-in); position embeddings normal with standard
/// deviation 0.02; the linear layers of the blocks Xavier uniform, with biases of standard deviation 1e-6; attention as
/// in nn::MultiheadAttention; class token, head and its bias zeros.
class TANDEM_API VisionTransformer : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1, patch_size divides image_size, num_heads divides hidden_dim,
  /// and the dropout probabilities are in [0, 1].
  explicit VisionTransformer(const VisionTransformerOptions& options = {});
  /// Throws ShapeError for images of another size.
  Tensor forward(const Tensor& images) override;

  Tensor& class_token;                ///< [1, 1, hidden_dim]
  nn::Conv2d& conv_proj;              ///< patches to tokens
  VisionTransformerEncoder& encoder;  ///< the blocks
  nn::Sequential& heads;              ///< one layer, `head`; replace_module("heads.head", ...) for other classes

 private:
  int64_t image_size_;
};

}}}  // namespace tandem::v0::models
