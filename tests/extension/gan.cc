// A GAN on two models and two optimizers: points on a circle, hinge loss with a gradient penalty (Gulrajani et al.,
// "Improved training of Wasserstein GANs", 2017). Throws unless the generator has learned the circle.
#include <iostream>
#include <numbers>

#include <tandem/tandem.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

constexpr int64_t kNoise = 4;

struct Mlp : nn::Sequential {
  Mlp(int64_t in, int64_t out) {
    append<nn::Linear>(in, 64);
    append<nn::ReLU>();
    append<nn::Linear>(64, 64);
    append<nn::ReLU>();
    append<nn::Linear>(64, out);
  }
};

/// Points on the unit circle.
td::Tensor real_points(int64_t n, td::Device device) {
  const td::Tensor angle = td::rand({n, 1}, {.device = device}) * (2 * std::numbers::pi);
  return td::cat({td::cos(angle), td::sin(angle)}, 1);
}

}  // namespace

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [](td::distributed::Context& ctx) {
    const td::TensorOptions here = {.device = ctx.device()};
    const int64_t batch = 64 / ctx.world_size();
    td::manual_seed(1);  // every rank draws other numbers
    Mlp generator(kNoise, 2), critic(2, 1);
    generator.to(ctx.device());
    critic.to(ctx.device());
    td::DistributedDataParallel generate(generator, ctx.group()), criticize(critic, ctx.group());
    td::optim::Adam generator_adam(generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});
    td::optim::Adam critic_adam(critic.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});

    for (int step = 0; step < 1500; ++step) {
      const td::Tensor real = real_points(batch, ctx.device());
      const td::Tensor fake = generate(td::randn({batch, kNoise}, here));

      // The critic's step. detach() keeps its gradients out of the generator.
      critic_adam.zero_grad();
      const td::Tensor mixing = td::rand({batch, 1}, here);
      const td::Tensor mixed = (mixing * real + (1 - mixing) * fake).detach().requires_grad_();
      const td::Tensor slope = td::grad({criticize(mixed).sum()}, {mixed}, {}, {.create_graph = true})[0];
      const td::Tensor penalty = td::square(td::norm(slope, 2, {1}) - 1).mean();
      (criticize(fake.detach()).mean() - criticize(real).mean() + penalty).backward();
      critic_adam.step();

      // The generator's step. Its gradients pass through the critic, whose own are neither needed nor exchanged.
      if (step % 2 == 0) {
        generator_adam.zero_grad();
        const td::HookHandle critic_alone = criticize.no_sync();
        (-criticize(fake).mean()).backward();
        generator_adam.step();
      }
    }

    const td::NoGradGuard no_grad;
    const td::Tensor points = generator(td::randn({1000, kNoise}, here));
    const double error = td::abs(td::norm(points, 2, {1}) - 1).mean().item();
    const double center = td::norm(points.mean({0})).item();
    if (ctx.rank() == 0)
      std::cout << "distance from the circle " << error << ", of the mean from its center " << center << "\n";
    TANDEM_CHECK(StateError, error < 0.2 && center < 0.3, "the generator has not learned the circle: distance ", error,
                 ", center ", center);
  });
}
