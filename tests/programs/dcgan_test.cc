// A DCGAN, as in libtorch's tutorial.
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>

namespace td = tandem;
namespace nn = td::nn;

namespace {

struct Generator : nn::Layer {
  explicit Generator(int64_t noise) : conv1(add<nn::ConvTranspose2d>("conv1", noise, 16, 4, {.bias = false})) {}

  nn::ConvTranspose2d& conv1;
  nn::BatchNorm2d& norm1 = add<nn::BatchNorm2d>("norm1", 16);
  nn::ConvTranspose2d& conv2 = add<nn::ConvTranspose2d>("conv2", 16, 8, 3, {.stride = 2, .padding = 1, .bias = false});
  nn::BatchNorm2d& norm2 = add<nn::BatchNorm2d>("norm2", 8);
  nn::ConvTranspose2d& conv3 = add<nn::ConvTranspose2d>("conv3", 8, 1, 4, {.stride = 2, .padding = 2, .bias = false});

  td::Tensor forward(const td::Tensor& noise) override {
    const td::Tensor x = td::relu(norm1(conv1(noise)));
    return td::tanh(conv3(td::relu(norm2(conv2(x)))));
  }
};

TEST(Programs, Dcgan) {
  Generator generator(16);
  nn::Sequential discriminator(nn::Conv2d(1, 8, 4, {.stride = 2, .padding = 1, .bias = false}), nn::LeakyReLU(0.2),
                               nn::Conv2d(8, 16, 3, {.stride = 2, .padding = 1, .bias = false}), nn::BatchNorm2d(16),
                               nn::LeakyReLU(0.2), nn::Conv2d(16, 1, 3, {.bias = false}), nn::Flatten(), nn::Sigmoid());
  td::testing::draw_weights(generator);
  td::testing::draw_weights(discriminator);
  td::optim::Adam generator_optimizer(generator.parameters(), {.lr = 2e-3, .betas = {0.5, 0.999}});
  td::optim::Adam discriminator_optimizer(discriminator.parameters(), {.lr = 2e-3, .betas = {0.5, 0.999}});

  std::vector<double> generator_losses, discriminator_losses;
  for (uint32_t step = 0; step < 20; ++step) {
    discriminator.zero_grad();
    const td::Tensor real_images = td::testing::shapes(8, step).slice(2, 2, 14).slice(3, 2, 14);
    const td::Tensor real_labels = td::testing::drawn({8, 1}, step).abs() * 0.2 + 0.8;
    const td::Tensor real_loss = td::binary_cross_entropy(discriminator(real_images), real_labels);
    real_loss.backward();

    const td::Tensor fake_images = generator(td::testing::drawn({8, 16, 1, 1}, 20 + step));
    const td::Tensor fake_labels = td::zeros({8, 1}, td::kDouble);
    const td::Tensor fake_loss = td::binary_cross_entropy(discriminator(fake_images.detach()), fake_labels);
    fake_loss.backward();
    discriminator_optimizer.step();

    generator.zero_grad();
    const td::Tensor loss = td::binary_cross_entropy(discriminator(fake_images), td::ones_like(fake_labels));
    loss.backward();
    generator_optimizer.step();
    discriminator_losses.push_back((real_loss + fake_loss).item());
    generator_losses.push_back(loss.item());
  }
  td::testing::expect_recorded_losses(generator_losses, "dcgan/generator", 1e-9);
  td::testing::expect_recorded_losses(discriminator_losses, "dcgan/discriminator", 1e-9);
}

}  // namespace
