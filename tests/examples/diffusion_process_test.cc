#include <tandem/examples/diffusion/diffusion.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace {

using namespace tandem;
using examples::Diffusion;
using tandem::testing::error_text;

/// sqrt(a_t), which scales the image at time t.
double signal_scale(int64_t t) {
  double signal = 1;
  for (int64_t s = 0; s <= t; ++s) signal *= 1 - (1e-4 + (0.02 - 1e-4) * static_cast<double>(s) / 999);
  return std::sqrt(signal);
}

TEST(Diffusion, NoiseReplacesTheImage) {
  const Diffusion diffusion(Device{});
  const Tensor images = full({4, 1, 2, 2}, 0.5);
  const Tensor noise = full({4, 1, 2, 2}, -1.0);
  const Tensor noisy = diffusion.add_noise(images, noise, tensor({0, 99, 500, 999}));
  int64_t i = 0;
  for (const int64_t t : {0, 99, 500, 999}) {
    const double scale = signal_scale(t);
    EXPECT_NEAR(noisy[i++][0][1][1].item(), 0.5 * scale - std::sqrt(1 - scale * scale), 1e-6) << t;
  }
  EXPECT_LT(signal_scale(999), 0.01);  // almost only noise
}

TEST(Diffusion, LossWeighsTimesBySignal) {
  const Diffusion diffusion(Device{});
  const Tensor images = zeros({1, 1, 2, 2});
  const auto loss = [&](int64_t t) { return diffusion.loss(full({1, 1, 2, 2}, 0.5), images, tensor({t})).item(); };
  EXPECT_NEAR(loss(0), 5 * 0.25, 1e-6);  // the limits
  EXPECT_NEAR(loss(999), 0.1 * 0.25, 1e-6);
  const double signal = signal_scale(300) * signal_scale(300);
  EXPECT_NEAR(loss(300), signal / (1 - signal) * 0.25, 1e-6);
  const Tensor two = diffusion.loss(full({2, 1, 2, 2}, 0.5), zeros({2, 1, 2, 2}), tensor({0, 999}));
  EXPECT_NEAR(two.item(), (loss(0) + loss(999)) / 2, 1e-6);
}

TEST(Diffusion, ExactPredictionsGiveTheImageBack) {
  const Diffusion diffusion(Device{});
  manual_seed(1);
  const Tensor image = rand({1, 3, 4, 4}) * 2 - 1;
  int64_t last_time = -1;
  int64_t calls = 0;
  const auto predict = [&](const Tensor& x, const Tensor& times) {
    EXPECT_EQ(times.shape(), Shape({2}));
    last_time = times[0].item<int64_t>();
    if (calls++ == 0) {
      EXPECT_EQ(last_time, 999);
    }
    EXPECT_EQ(x.shape(), Shape({2, 3, 4, 4}));
    return image.expand({2, 3, 4, 4});
  };
  Generator generator(7);
  for (const int64_t steps : {1, 7, 1000}) {
    for (const double eta : {0.0, 1.0}) {
      calls = 0;
      const Tensor samples = diffusion.sample(predict, randn({2, 3, 4, 4}), {steps, eta}, generator);
      EXPECT_EQ(calls, steps);
      EXPECT_LT((samples - image).abs().max().item(), 1e-3) << steps << " " << eta;
    }
  }
  EXPECT_EQ(last_time, 0);
}

TEST(Diffusion, EtaAddsNoiseOfTheGenerator) {
  const Diffusion diffusion(Device{});
  const auto predict = [](const Tensor& x, const Tensor&) { return x * 0.5; };
  const Tensor noise = full({1, 1, 2, 2}, 0.3);
  const auto sample = [&](double eta, uint64_t seed) {
    Generator generator(seed);
    return diffusion.sample(predict, noise, {4, eta}, generator).to_vector<float>();
  };
  EXPECT_EQ(sample(0, 1), sample(0, 2));
  EXPECT_EQ(sample(1, 1), sample(1, 1));
  EXPECT_NE(sample(1, 1), sample(1, 2));
}

TEST(Diffusion, SampleOptionsOutOfRangeThrow) {
  const Diffusion diffusion(Device{});
  const auto error = [&](examples::DiffusionSampleOptions options) {
    Generator generator;
    return error_text<ValueError>([&] {
      diffusion.sample([](const Tensor& x, const Tensor&) { return x; }, ones({1, 1, 1, 1}), options, generator);
    });
  };
  EXPECT_EQ(error({.steps = 0}), "sample: steps is 0, expected 1 to 1000");
  EXPECT_EQ(error({.steps = 1001}), "sample: steps is 1001, expected 1 to 1000");
  EXPECT_EQ(error({.eta = 1.5}), "sample: eta is 1.5, expected 0 to 1");
  EXPECT_EQ(error({.eta = std::nan("")}), "sample: eta is nan, expected 0 to 1");
}

}  // namespace
