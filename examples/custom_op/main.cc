// Trains a network with a custom operation, which has kernels for CPUs and GPUs (snake.h), on a part of a wave, and
// plots the network's extrapolation. Needs only an installed tandem:
//
//     ./bazelw run //:install -- PREFIX
//     cmake -S examples/custom_op -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build
//     build/custom_op --nproc 2 --out results
//     build/custom_op --nproc 2 --out results --save-every 500 --resume
#include <tandem/tandem.h>
#include <tandem/train/plot.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "snake.h"

namespace td = tandem;

namespace {

constexpr double kSeen = 5;    // training has the wave from -5 to 5
constexpr double kShown = 10;  // the picture has it from -10 to 10

td::Tensor wave(const td::Tensor& x) { return td::sin(x * 2); }

struct Snake : td::nn::Layer {
  td::Tensor& scale;  // the frequency of each feature, which is trained
  explicit Snake(int64_t features) : scale(add_parameter("scale", td::ones({features}))) {}
  td::Tensor forward(const td::Tensor& x) override { return custom_op::snake(x * scale); }
};

struct Net : td::nn::Layer {
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 1, 64);
  Snake& snake = add<Snake>("snake", 64);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 64, 1);
  td::Tensor forward(const td::Tensor& x) override { return fc2(snake(fc1(x))); }
};

/// Writes the picture; returns the mean squared error outside of the training data.
double plot_wave(Net& net, td::Device device, const std::string& path) {
  const td::NoGradGuard no_grad;
  const td::Tensor x = td::linspace(-kShown, kShown, 401).unsqueeze(1);
  const td::Tensor y = wave(x), network = net(x.to(device)).cpu();
  const td::Tensor is_unseen = td::abs(x) > kSeen;
  const auto line = [&](const std::string& label, const td::Tensor& values, const td::Tensor& at) {
    return td::train::Series{
        .label = label, .x = at.flatten().to_vector<double>(), .y = values.flatten().to_vector<double>()};
  };
  const td::Tensor seen = td::linspace(-kSeen, kSeen, 201).unsqueeze(1);
  std::ofstream file(path);
  file << td::train::to_svg(
      {.title = "A wave, continued by a network of one layer with Snake",
       .x_label = "x",
       .y_label = "y",
       .series = {line("wave", y, x), line("network", network, x), line("training data", wave(seen), seen)}});
  TANDEM_CHECK(IoError, file.flush(), "custom_op: cannot write '", path, "'");
  return td::mse_loss(network.masked_select(is_unseen), y.masked_select(is_unseen)).item();
}

struct Settings {
  td::train::TrainerOptions trainer = {
      .name = "custom_op", .title = "Snake on a wave", .items = "points", .epochs = 30};
  uint64_t seed = 1;
};

void train(td::distributed::Context& ctx, const Settings& settings) {
  td::manual_seed(settings.seed);
  const td::Tensor x = td::linspace(-kSeen, kSeen, 8192).unsqueeze(1);
  const td::data::TensorDataset points({.input = x, .target = wave(x)});
  td::data::DistributedSampler sampler(points.size(), ctx.rank(), ctx.world_size(), {.seed = settings.seed});
  td::data::DataLoader loader(
      points, sampler, {.batch_size = std::max(1, 128 / ctx.world_size()), .drop_last = true, .device = ctx.device()});
  Net net;
  net.to(ctx.device());
  td::DistributedDataParallel ddp(net, ctx.group());
  td::optim::AdamW adamw(net.parameters(), {.lr = 3e-3, .weight_decay = 1e-2});
  td::train::Trainer trainer(ctx, settings.trainer,
                             {.model = net, .reducer = ddp.reducer(), .optimizer = adamw, .loader = loader});
  trainer.fit([&](const td::data::Batch& batch) { return td::mse_loss(ddp(batch.input), batch.target); });
  if (ctx.rank() != 0) return;
  const double error = plot_wave(net, ctx.device(), settings.trainer.out + "/wave.svg");
  std::cout << "squared error beyond the training data " << error << "\n";
}

Settings parse(int argc, char** argv) {
  Settings settings;
  td::train::TrainerOptions& trainer = settings.trainer;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--resume") {
      trainer.resume = true;
      continue;
    }
    TANDEM_CHECK(
        ValueError,
        i + 1 < argc && (flag == "--out" || flag == "--max-steps" || flag == "--save-every" || flag == "--seed"),
        "custom_op: unexpected '", flag, "'; usage: custom_op [--nproc N] [--device cpu|cuda] [--out DIR] ",
        "[--max-steps N] [--save-every N] [--seed N] [--resume]");
    const std::string value = argv[++i];
    if (flag == "--out") {
      trainer.out = value;
      continue;
    }
    TANDEM_CHECK(ValueError, !value.empty() && value.size() < 10 && value.find_first_not_of("0123456789") == value.npos,
                 "custom_op: ", flag, ": expected a whole number, got '", value, "'");
    const int64_t number = std::stoll(value);
    if (flag == "--seed") {
      settings.seed = static_cast<uint64_t>(number);
    } else {
      (flag == "--max-steps" ? trainer.max_steps : trainer.save_every) = number;
    }
  }
  trainer.identity.emplace_back("--seed", td::str(settings.seed));
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, parse(argc, argv)); });
}
