// The network of diffusion models, J. Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/nn/norm.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of DdpmUNet.
struct DdpmUNetOptions {
  int64_t channels = 3;  ///< of the images
  int64_t width = 128;   ///< of the first convolution, even and a multiple of `groups`
  /// Channels of each level, divided by width. Each level after the first halves the image.
  std::vector<int64_t> multipliers = {1, 2, 2, 2};
  int64_t groups = 32;  ///< of the group norms
  int64_t patch = 1;    ///< side of the squares of pixels that the network sees as one position; 1 in the paper
};

/// Two 3x3 convolutions with a shortcut around them: x [N, in_channels, H, W] and an embedding [N, E] of the time ->
/// [N, out_channels, H, W]: shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x))) + time(silu(embedding))))). The
/// shortcut is the identity, or a 1x1 convolution if the numbers of channels differ. conv2 begins with zeros.
class TANDEM_API DdpmBlock : public nn::ConditionalLayer {
 public:
  /// `embedding`: E. Throws ValueError unless `groups` divides both numbers of channels.
  DdpmBlock(int64_t in_channels, int64_t out_channels, int64_t embedding, int64_t groups);
  Tensor forward(const Tensor& x, const Tensor& embedding) override;

  nn::GroupNorm& norm1;            ///< of the input
  nn::Conv2d& conv1;               ///< to out_channels
  nn::Linear& time;                ///< of the embedding, to a bias of each channel
  nn::GroupNorm& norm2;            ///< of the sum of both
  nn::Conv2d& conv2;               ///< the result
  nn::Conv2d* shortcut = nullptr;  ///< null if the numbers of channels are equal
};

/// Attention of one head over the positions of an image: x [N, C, H, W] -> x + proj(attention(qkv(norm(x)))). `proj`
/// begins with zeros.
class TANDEM_API DdpmAttention : public nn::Layer {
 public:
  /// Throws ValueError unless `groups` divides `channels`.
  DdpmAttention(int64_t channels, int64_t groups);
  Tensor forward(const Tensor& x) override;

  nn::GroupNorm& norm;  ///< of the input
  nn::Linear& qkv;      ///< to queries, keys and values
  nn::Linear& proj;     ///< of the result
};

/// images [N, channels, H, W] and times int64 [N] -> [N, channels, H, W]; H and W are multiples of patch *
/// 2^(number of levels - 1).
///
/// A U-Net: on the way down a DdpmBlock `down<i>` for each level and a convolution of stride 2 between levels; at the
/// lowest level a block, DdpmAttention and a block; on the way up, for each level, a block `up<i>` of the concatenation
/// with the result of block `down<i>`, and between levels a nearest interpolation and a convolution. The paper has two
/// blocks for each level and attention at a second level. Every block gets an embedding of the time: sines and cosines
/// of the time at `width` / 2 frequencies 10000^(-2 i / width), and two linear layers. With patch p > 1 the first
/// convolution sees p x p pixels as channels (pixel_unshuffle), and the result is rearranged the same way, which takes
/// p^2 times fewer operations. The last convolution begins with zeros.
class TANDEM_API DdpmUNet : public nn::Module {
 public:
  /// Throws ValueError unless there is a level, all sizes are at least 1, and width is even and a multiple of groups.
  explicit DdpmUNet(const DdpmUNetOptions& options = {});
  /// The network's result, for example the noise in the images at these times.
  Tensor operator()(const Tensor& images, const Tensor& times);

  DdpmUNetOptions options;             ///< the argument of the constructor
  nn::Linear& time1;                   ///< of the sines and cosines
  nn::Linear& time2;                   ///< to the embedding, with 4 width channels
  nn::Conv2d& in;                      ///< to the first level
  std::vector<DdpmBlock*> down;        ///< the first level first
  std::vector<nn::Conv2d*> halve;      ///< between the levels
  DdpmBlock* middle1 = nullptr;        ///< at the lowest level
  DdpmAttention* attention = nullptr;  ///< behind middle1
  DdpmBlock* middle2 = nullptr;        ///< behind attention
  std::vector<DdpmBlock*> up;          ///< the first level first
  std::vector<nn::Conv2d*> twice;      ///< between the levels, after interpolations; the first level first
  nn::GroupNorm* norm = nullptr;       ///< in front of `out`
  nn::Conv2d* out = nullptr;           ///< the result
};

}}}  // namespace tandem::v0::models
