// A U-Net that removes noise from drawn shapes: its first losses are PyTorch's, and the later ones small.
#include <tandem/models/unet.h>
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing { namespace {

constexpr int kSteps = 200;

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

}}  // namespace tandem::testing
