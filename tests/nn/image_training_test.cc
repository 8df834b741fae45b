// A U-Net that removes noise from drawn shapes, and a DCGAN that draws them: their first losses are PyTorch's, and the
// later ones within known bounds.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/models/dcgan.h>
#include <tandem/models/unet.h>
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>

namespace tandem::testing { namespace {

constexpr int kSteps = 200;

/// Images [batch, 1, 16, 16] of one disc each: 1 inside, -1 outside.
Tensor shapes(int64_t batch, uint32_t seed) {
  const Tensor numbers = drawn({3, batch, 1, 1}, seed) * 5;
  const Tensor grid = arange(16, TensorOptions{kFloat64}) - 8;
  const Tensor dx = grid - numbers[0], dy = grid.reshape({16, 1}) - numbers[1], radius = numbers[2] / 2.5 + 4;
  return ((dx * dx + dy * dy < radius * radius).to(kFloat64) * 2 - 1).unsqueeze(1);
}

TEST(UNet, RemovesNoiseAsInPyTorch) {
  models::UNet model({.channels = 1, .width = 8, .levels = 2, .groups = 2});
  draw_weights(model);
  optim::Adam adam(model.parameters(), {.lr = 3e-3});
  std::vector<double> losses;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const Tensor clean = shapes(8, step);
    adam.zero_grad();
    const Tensor loss = mse_loss(model(clean + drawn(clean.shape(), kSteps + step)), clean);
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
  }
  expect_recorded_losses(losses, "unet", 1e-9);
  EXPECT_LT(*std::max_element(losses.end() - 20, losses.end()), 0.03);  // 0.74 at the start
}

void expect_between(const std::vector<double>& values, double low, double high) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GT(*least, low);
  EXPECT_LT(*most, high);
}

TEST(Dcgan, LossesStayInBandAsInPyTorch) {
  const models::DcganOptions options{.latent = 8, .width = 8, .channels = 1, .levels = 2};
  models::DcganGenerator generator(options);
  models::DcganDiscriminator discriminator(options);
  draw_weights(generator);
  draw_weights(discriminator);
  const optim::AdamOptions settings{.lr = 1e-3, .betas = {0.5, 0.999}};
  optim::Adam generator_adam(generator.parameters(), settings),
      discriminator_adam(discriminator.parameters(), settings);
  const Tensor real = ones({8, 1}, {kFloat64}), drawn_by_generator = zeros({8, 1}, {kFloat64});
  std::vector<double> discriminator_losses, generator_losses;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const Tensor images = generator(drawn({8, 8, 1, 1}, step));
    discriminator_adam.zero_grad();
    Tensor loss = binary_cross_entropy_with_logits(discriminator(shapes(8, step)), real) +
                  binary_cross_entropy_with_logits(discriminator(images.detach()), drawn_by_generator);
    loss.backward();
    discriminator_adam.step();
    discriminator_losses.push_back(loss.item<double>());
    generator_adam.zero_grad();
    loss = binary_cross_entropy_with_logits(discriminator(images), real);
    loss.backward();
    generator_adam.step();
    generator_losses.push_back(loss.item<double>());
  }
  expect_recorded_losses(discriminator_losses, "dcgan/discriminator", 1e-7);
  expect_recorded_losses(generator_losses, "dcgan/generator", 1e-7);
  expect_between(discriminator_losses, 0.5, 2);  // neither network defeats the other
  expect_between(generator_losses, 0.5, 2);
}

}}  // namespace tandem::testing
