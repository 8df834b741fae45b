// A generator and a discriminator of images, A. Radford et al., "Unsupervised representation learning with deep
// convolutional generative adversarial networks", ICLR 2016.
#pragma once

#include <tandem/tandem.h>

namespace models {

/// Sizes of DcganGenerator and DcganDiscriminator.
struct DcganOptions {
  int64_t latent = 100;  ///< channels of the generator's input
  int64_t width = 64;    ///< channels of the layer next to the image
  int64_t channels = 3;  ///< of the image
  int64_t levels = 4;    ///< the image has 4 * 2^levels rows and columns
};

/// Noise [N, latent, 1, 1] -> images [N, channels, 4 * 2^levels, 4 * 2^levels] with values in (-1, 1): transposed
/// convolutions that double the image, with batch norm and ReLU between them, and tanh. Keys "main.0.weight", ... .
struct DcganGenerator : tandem::nn::Layer {
  explicit DcganGenerator(const DcganOptions& options = {}) : main(add<tandem::nn::Sequential>("main")) {
    int64_t channels = options.width << (options.levels - 1);
    append(options.latent, channels, {.stride = 1, .padding = 0});
    for (int64_t level = options.levels; level > 0; --level) {
      main.append<tandem::nn::BatchNorm2d>(channels);
      main.append<tandem::nn::ReLU>();
      append(channels, level > 1 ? channels / 2 : options.channels, {.stride = 2, .padding = 1});
      channels /= 2;
    }
    main.append<tandem::nn::Tanh>();
  }

  tandem::Tensor forward(const tandem::Tensor& noise) override { return main(noise); }

  tandem::nn::Sequential& main;

 private:
  void append(int64_t in_channels, int64_t out_channels, const tandem::nn::ConvTranspose2dOptions& options) {
    main.append<tandem::nn::ConvTranspose2d>(in_channels, out_channels, 4, options,
                                             tandem::nn::ConvLayerOptions{.bias = false});
  }
};

/// Images of DcganGenerator's shape -> logits [N, 1] that an image is real: convolutions that halve the image, with
/// batch norm (except after the first) and leaky ReLU between them. Keys "main.0.weight", ... .
struct DcganDiscriminator : tandem::nn::Layer {
  explicit DcganDiscriminator(const DcganOptions& options = {}) : main(add<tandem::nn::Sequential>("main")) {
    int64_t channels = options.width;
    append(options.channels, channels, {.stride = 2, .padding = 1});
    main.append<tandem::nn::LeakyReLU>(0.2);
    for (int64_t level = 1; level < options.levels; ++level) {
      append(channels, 2 * channels, {.stride = 2, .padding = 1});
      channels *= 2;
      main.append<tandem::nn::BatchNorm2d>(channels);
      main.append<tandem::nn::LeakyReLU>(0.2);
    }
    append(channels, 1, {});
  }

  tandem::Tensor forward(const tandem::Tensor& images) override { return main(images).flatten(1); }

  tandem::nn::Sequential& main;

 private:
  void append(int64_t in_channels, int64_t out_channels, const tandem::nn::Conv2dOptions& options) {
    main.append<tandem::nn::Conv2d>(in_channels, out_channels, 4, options, tandem::nn::ConvLayerOptions{.bias = false});
  }
};

/// The discriminator's logits for the generator's images.
struct Dcgan : tandem::nn::Layer {
  explicit Dcgan(const DcganOptions& options = {})
      : generator(add<DcganGenerator>("generator", options)),
        discriminator(add<DcganDiscriminator>("discriminator", options)) {}

  tandem::Tensor forward(const tandem::Tensor& noise) override { return discriminator(generator(noise)); }

  DcganGenerator& generator;
  DcganDiscriminator& discriminator;
};

}  // namespace models
