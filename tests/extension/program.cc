// What a program may add to tandem: an operation with kernels for CPUs and GPUs, a layer, an optimizer, a schedule, a
// dataset, a gradient hook and a communication hook. Trains a small network with them on any number of ranks, and
// throws unless it learns.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include <tandem/tandem.h>

#include "sign_sgd.h"
#include "snake.h"

namespace td = tandem;

namespace {

/// A layer with a trainable weight per feature.
struct Snake : td::nn::Layer {
  td::Tensor& scale;
  explicit Snake(int64_t features) : scale(add_parameter("scale", td::ones({features}))) {}
  td::Tensor forward(const td::Tensor& x) override { return custom_op::snake(x * scale); }
};

struct Net : td::nn::Layer {
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 1, 32);
  Snake& snake = add<Snake>("snake", 32);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 32, 1);
  td::Tensor forward(const td::Tensor& x) override { return fc2(snake(fc1(x))); }
};

/// Pairs (x, sin(3 x)).
struct Sine : td::data::Dataset {
  int64_t size() const override { return 256; }
  td::data::Example get(int64_t index) const override {
    const float x = static_cast<float>(index) / 64 - 2;
    return {td::from_vector<float>({x}, {1}), td::from_vector<float>({std::sin(3 * x)}, {1})};
  }
};

/// Linear warm-up, then constant.
struct Warmup {
  static constexpr const char* kName = "Warmup";
  int64_t steps = 20;
  std::vector<td::optim::Option> options() { return {{"steps", &steps}}; }
  double factor_at(int64_t step) const {
    return std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(steps));
  }
};

/// Sends gradients as bfloat16.
struct Rounded : td::distributed::CommHook {
  std::string describe() const override { return "rounded"; }
  void average(const td::distributed::GradBucket& bucket, const td::distributed::AllReduceMean& all_reduce,
               std::function<void()> done) override {
    const td::Tensor sent = bucket.values.to(td::kBFloat16);
    all_reduce(sent, [values = bucket.values, sent, done] {
      values.copy_(sent);
      done();
    });
  }
};

void check_operation(td::Device device) {
  const td::Tensor x = td::linspace(-2, 2, 40, {td::kFloat64}).to(device).requires_grad_();
  const auto f = [](const std::vector<td::Tensor>& in) { return custom_op::snake(in[0], 1.5); };
  td::autograd::gradcheck(f, {x});
  td::autograd::gradgradcheck(f, {x});
  const std::vector<double> in = x.to_vector<double>(), out = f({x}).to_vector<double>();
  for (size_t i = 0; i < in.size(); ++i) {
    const double expected = in[i] + std::pow(std::sin(1.5 * in[i]), 2) / 1.5;
    TANDEM_CHECK(ValueError, std::abs(out[i] - expected) < 1e-12, "snake(", in[i], ") is ", out[i], ", expected ",
                 expected);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [](td::distributed::Context& ctx) {
    check_operation(ctx.device());
    td::manual_seed(1);
    const Sine sine;
    td::data::DataLoader loader(
        sine, {.batch_size = 64 / ctx.world_size(), .shuffle = true, .device = ctx.device(), .seed = 1}, ctx);

    Net model;
    model.to(ctx.device());
    td::DistributedDataParallel ddp(model, ctx.group(), {.hooks = {std::make_shared<Rounded>()}});
    int hook_calls = 0;
    const td::HookHandle hook = model.fc1.weight.register_hook([&](const td::Tensor& grad) {
      ++hook_calls;
      return grad.clamp(-1, 1);
    });
    extension::SignSGD optimizer(model.parameters(), {.lr = 2e-3, .momentum = 0.9});
    td::optim::ScheduleOf<Warmup> schedule(optimizer, {.steps = 20});
    double loss_of_epoch = 0;
    int steps = 0;
    for (int epoch = 0; epoch < 100; ++epoch) {
      loss_of_epoch = 0;
      for (auto& batch : loader) {
        optimizer.zero_grad();
        const td::Tensor loss = td::mse_loss(ddp(batch.input), batch.target);
        loss.backward();
        optimizer.step();
        schedule.step();
        loss_of_epoch += loss.item() / 4;
        ++steps;
      }
    }
    TANDEM_CHECK(StateError, loss_of_epoch < 0.05, "the loss is ", loss_of_epoch, ", expected less than 0.05");
    TANDEM_CHECK(StateError, hook_calls == steps, "the gradient hook was called ", hook_calls, " times in ", steps,
                 " steps");
    if (ctx.rank() == 0) std::cout << "learned on " << ctx.world_size() << " ranks\n";
  });
}
