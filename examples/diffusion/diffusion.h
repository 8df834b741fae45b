// The process of diffusion models: images become noise step by step, and a network that removes noise turns
// noise into images. J. Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020; J. Song et al.,
// "Denoising diffusion implicit models", ICLR 2021.
#pragma once

#include <tandem/tandem.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace examples {

/// Options of Diffusion::sample.
struct DiffusionSampleOptions {
  int64_t steps = 50;  ///< calls of the network, from 1 to Diffusion::kTimes
  double eta = 0;      ///< noise that each step adds: 0 none (DDIM); 1 with kTimes steps: the sampling of DDPM
};

/// At time t, from 0 to kTimes - 1, an image is sqrt(a_t) image + sqrt(1 - a_t) noise, where a_t is the product of 1 -
/// beta_s for s <= t, and beta_s rises linearly from 1e-4 to 0.02.
class Diffusion {
 public:
  static constexpr int64_t kTimes = 1000;

  /// Tensors are on `device`.
  explicit Diffusion(tandem::Device device);

  /// The images [N, C, H, W] with the noise of these times, int64 [N].
  tandem::Tensor add_noise(const tandem::Tensor& images, const tandem::Tensor& noise,
                           const tandem::Tensor& times) const;
  /// The error of a network's images without noise, [N, C, H, W]: the mean over the images of w_t times the mean
  /// squared difference. The weight w_t = a_t / (1 - a_t), limited to [0.1, 5], is higher at times with less noise.
  /// T. Hang et al., "Efficient diffusion training via min-SNR weighting strategy", ICCV 2023.
  tandem::Tensor loss(const tandem::Tensor& predicted, const tandem::Tensor& images, const tandem::Tensor& times) const;
  /// Turns noise [N, C, H, W] into images with values in [-1, 1]. `predict`: the images without noise, from images
  /// [N, C, H, W] of these times, int64 [N]. Random numbers are drawn from `generator`. Records nothing for backward.
  /// Throws ValueError unless 1 <= steps <= kTimes and 0 <= eta <= 1.
  tandem::Tensor sample(
      const std::function<tandem::Tensor(const tandem::Tensor& x, const tandem::Tensor& times)>& predict,
      const tandem::Tensor& noise, const DiffusionSampleOptions& options, tandem::Generator& generator) const;

 private:
  std::vector<double> signal_;   ///< a_t
  tandem::Tensor signal_scale_;  ///< sqrt(a_t)
  tandem::Tensor noise_scale_;   ///< sqrt(1 - a_t)
  tandem::Tensor weight_;        ///< w_t
};

}  // namespace examples
