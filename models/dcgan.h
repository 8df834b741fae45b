// A generator and a discriminator of images, A. Radford et al., "Unsupervised representation learning with deep
// convolutional generative adversarial networks", ICLR 2016.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/nn/sequential.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of DcganGenerator and DcganDiscriminator.
struct DcganOptions {
  int64_t latent = 100;  ///< channels of the generator's input
  int64_t width = 64;    ///< channels of the layer next to the image
  int64_t channels = 3;  ///< of the image
  int64_t levels = 4;    ///< the image has 4 * 2^levels rows and columns
};

/// Noise [N, latent, 1, 1] -> images [N, channels, 4 * 2^levels, 4 * 2^levels] with values in (-1, 1): transposed
/// convolutions that double the image, with batch norm and ReLU between them, and tanh.
///
/// Keys main.0.weight, main.1.weight and so on. Initial values as in the paper: convolutions normal with standard
/// deviation 0.02; weights of batch norms normal with mean 1 and standard deviation 0.02, their biases zeros.
class TANDEM_API DcganGenerator : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit DcganGenerator(const DcganOptions& options = {});
  Tensor forward(const Tensor& noise) override { return main(noise); }

  nn::Sequential& main;  ///< all layers
};

/// Images of DcganGenerator's shape -> logits [N, 1] that an image is real: convolutions that halve the image, with
/// batch norm (except after the first) and leaky ReLU of slope 0.2 between them.
///
/// Keys and initial values as in DcganGenerator.
class TANDEM_API DcganDiscriminator : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit DcganDiscriminator(const DcganOptions& options = {});
  Tensor forward(const Tensor& images) override { return main(images).flatten(1); }

  nn::Sequential& main;  ///< all layers
};

/// The discriminator's logits for the generator's images.
class TANDEM_API Dcgan : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit Dcgan(const DcganOptions& options = {});
  Tensor forward(const Tensor& noise) override { return discriminator(generator(noise)); }

  DcganGenerator& generator;          ///< generates images
  DcganDiscriminator& discriminator;  ///< computes the logits that images are real
};

}}}  // namespace tandem::v0::models
