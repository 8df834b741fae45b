// A denoising diffusion model: training, and samples by the reverse process.
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>

namespace td = tandem;
namespace nn = td::nn;

namespace {

struct Block : nn::ConditionalLayer {
  Block(int64_t channels, int64_t embedding)
      : norm(add<nn::GroupNorm>("norm", 4, channels)),
        conv1(add<nn::Conv2d>("conv1", channels, channels, 3, {.padding = 1})),
        time(add<nn::Linear>("time", embedding, channels)),
        conv2(add<nn::Conv2d>("conv2", channels, channels, 3, {.padding = 1})) {}

  td::Tensor forward(const td::Tensor& x, const td::Tensor& t) override {
    const td::Tensor h = conv1(td::silu(norm(x))) + time(td::silu(t)).unsqueeze(-1).unsqueeze(-1);
    return x + conv2(td::silu(h));
  }

  nn::GroupNorm& norm;
  nn::Conv2d& conv1;
  nn::Linear& time;
  nn::Conv2d& conv2;
};

struct Model : nn::Module {
  nn::Sequential& body = add<nn::Sequential>("body", nn::Conv2d(1, 8, 3, {.padding = 1}), Block(8, 16), Block(8, 16),
                                             nn::Conv2d(8, 1, 3, {.padding = 1}));

  td::Tensor operator()(const td::Tensor& x, const td::Tensor& t) {
    nn::ModuleScope scope(*this);
    const td::Tensor frequencies = td::exp(td::arange(8, td::kDouble) * (-std::log(100.0) / 8));
    const td::Tensor angles = t.to(td::kDouble).unsqueeze(1) * frequencies;
    return body(x, td::cat({angles.sin(), angles.cos()}, 1));
  }
};

TEST(Programs, Ddpm) {
  constexpr int kSteps = 50;
  Model model;
  td::testing::draw_weights(model);
  td::optim::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  const td::Tensor betas = td::linspace(1e-3, 0.1, kSteps, td::kDouble);
  const td::Tensor products = td::cumprod(1 - betas, 0);

  std::vector<double> losses;
  for (uint32_t step = 0; step < 20; ++step) {
    const td::Tensor clean = td::testing::shapes(8, step);
    const td::Tensor noise = td::testing::drawn(clean.sizes(), 20 + step);
    const td::Tensor t = ((td::testing::drawn(8, step) + 1) / 2 * kSteps).to(td::kLong);
    const td::Tensor a = products.index({t}).view(-1, 1, 1, 1);
    optimizer.zero_grad();
    const td::Tensor loss = td::mse_loss(model(a.sqrt() * clean + (1 - a).sqrt() * noise, t), noise);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  td::testing::expect_recorded_losses(losses, "ddpm", 1e-9);

  td::NoGradGuard no_grad;
  td::Tensor x = td::testing::drawn({2, 1, 16, 16}, 1000);
  for (int t = kSteps - 1; t >= 0; --t) {
    const td::Tensor predicted = model(x, td::full(2, t, td::kLong));
    x = (x - betas[t] / (1 - products[t]).sqrt() * predicted) / (1 - betas[t]).sqrt();
    if (t > 0) x += betas[t].sqrt() * td::testing::drawn(x.sizes(), static_cast<uint32_t>(2000 + t));
  }
  td::testing::expect_recorded_losses({x.mean().item(), x.abs().max().item()}, "ddpm/sample", 1e-9);
}

}  // namespace
