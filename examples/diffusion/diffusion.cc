#include <tandem/examples/diffusion/diffusion.h>

#include <algorithm>
#include <cmath>

namespace examples {

namespace td = tandem;

Diffusion::Diffusion(td::Device device) {
  const td::Tensor signal_scale = td::empty({kTimes});
  const td::Tensor noise_scale = td::empty({kTimes});
  const td::Tensor weight = td::empty({kTimes});
  double signal = 1;
  for (int64_t t = 0; t < kTimes; ++t) {
    const double beta = 1e-4 + (0.02 - 1e-4) * static_cast<double>(t) / (kTimes - 1);
    signal *= 1 - beta;
    signal_.push_back(signal);
    signal_scale.data<float>()[t] = static_cast<float>(std::sqrt(signal));
    noise_scale.data<float>()[t] = static_cast<float>(std::sqrt(1 - signal));
    weight.data<float>()[t] = static_cast<float>(std::clamp(signal / (1 - signal), 0.1, 5.0));
  }
  signal_scale_ = signal_scale.to(device);
  noise_scale_ = noise_scale.to(device);
  weight_ = weight.to(device);
}

td::Tensor Diffusion::add_noise(const td::Tensor& images, const td::Tensor& noise, const td::Tensor& times) const {
  const auto at_times = [&](const td::Tensor& scale) {
    return td::index_select(scale, 0, times).reshape({times.size(0), 1, 1, 1});
  };
  return at_times(signal_scale_) * images + at_times(noise_scale_) * noise;
}

td::Tensor Diffusion::loss(const td::Tensor& predicted, const td::Tensor& images, const td::Tensor& times) const {
  return (td::index_select(weight_, 0, times) * (predicted - images).square().mean({1, 2, 3})).mean();
}

td::Tensor Diffusion::sample(const std::function<td::Tensor(const td::Tensor& x, const td::Tensor& times)>& predict,
                             const td::Tensor& noise, const DiffusionSampleOptions& options,
                             td::Generator& generator) const {
  if (options.steps < 1 || options.steps > kTimes) {
    throw td::ValueError(td::str("sample: steps is ", options.steps, ", expected 1 to ", kTimes));
  }
  if (!(options.eta >= 0 && options.eta <= 1)) {
    throw td::ValueError(td::str("sample: eta is ", options.eta, ", expected 0 to 1"));
  }
  const td::NoGradGuard no_grad;
  td::Tensor x = noise;
  for (int64_t step = options.steps; step > 0; --step) {
    // Equally spaced times: kTimes - 1 first. Before the first time there is no noise.
    const int64_t t = step * kTimes / options.steps - 1;
    const int64_t previous = (step - 1) * kTimes / options.steps - 1;
    const double signal = signal_[static_cast<size_t>(t)];
    const double next_signal = previous < 0 ? 1 : signal_[static_cast<size_t>(previous)];
    const td::Tensor image = td::clamp(predict(x, td::full({x.size(0)}, t, {td::kInt64, x.device()})), -1, 1);
    const td::Tensor predicted_noise = (x - image * std::sqrt(signal)) * (1 / std::sqrt(1 - signal));
    const double variance = options.eta * options.eta * (1 - next_signal) / (1 - signal) * (1 - signal / next_signal);
    x = image * std::sqrt(next_signal) + predicted_noise * std::sqrt(std::max(0.0, 1 - next_signal - variance));
    if (variance > 0) x = x + td::randn(x.shape(), {}, &generator).to(x.device()) * std::sqrt(variance);
  }
  return x;
}

}  // namespace examples
