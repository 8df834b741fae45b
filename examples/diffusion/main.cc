// Trains a network that turns noise into images (DDPM), on one process or on several.
//
//     ./bazelw run //examples/diffusion -- --nproc 2
//     ./bazelw run //examples/diffusion -- --nproc 2 --data FOLDER_WITH_CIFAR_10 --width 128 --patch 1 --epochs 100
#include <tandem/examples/diffusion/diffusion.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/samples.h>
#include <tandem/models/ddpm_unet.h>
#include <tandem/tandem.h>
#include <tandem/train/metrics.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;    // test images and their noise do not depend on --seed
constexpr uint64_t kPictureSeed = 0x9a1;  // of the noise of the pictures, which is the same in all of them
constexpr int64_t kPictures = 24;
constexpr size_t kTestBatch = 64;

using AveragedUNet = td::nn::AveragedModel<td::models::DdpmUNet>;

struct DiffusionFlags {
  td::models::DdpmUNetOptions model = {.width = 32, .groups = 8, .patch = 2};
  int64_t levels = 3;
  int64_t images = 10000;
  double ema = 0.999;
  examples::DiffusionSampleOptions sample;
};

struct Datasets {
  std::unique_ptr<td::data::Dataset> train;
  std::unique_ptr<td::data::Dataset> test;
};

Datasets open_data(const examples::TrainingFlags& flags, const DiffusionFlags& diffusion_flags) {
  using namespace td::data;
  if (flags.data.empty()) {
    const ShapesOptions plain = {.plain = true};
    return {std::make_unique<ShapesDataset>(diffusion_flags.images, flags.seed, plain),
            std::make_unique<ShapesDataset>(std::max<int64_t>(1, diffusion_flags.images / 20), kTestSeed, plain)};
  }
  return {std::make_unique<CifarDataset>(flags.data, CifarSplit::kTrain),
          std::make_unique<CifarDataset>(flags.data, CifarSplit::kTest)};
}

/// Diffusion::loss of the test images, which are distributed over the ranks. Time and noise of an image depend only on
/// its number. Collective.
double test_error(td::models::DdpmUNet& model, const examples::Diffusion& diffusion, const td::data::Dataset& test,
                  td::distributed::Context& ctx) {
  td::data::DistributedSampler sampler(
      test.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  const std::vector<int64_t> items = sampler.begin_epoch();
  td::train::Mean error({.group = ctx.group()});
  for (size_t first = 0; first < items.size(); first += kTestBatch) {
    const auto batch = std::span(items).subspan(first, std::min(kTestBatch, items.size() - first));
    const td::Tensor images = test.get_batch(batch).input.to(ctx.device()) * 2 - 1;
    std::vector<td::Tensor> times;
    std::vector<td::Tensor> noises;
    for (const int64_t item : batch) {
      td::Generator generator(kTestSeed + static_cast<uint64_t>(item));
      times.push_back(td::randint(0, examples::Diffusion::kTimes, {}, {td::kInt64}, &generator));
      noises.push_back(td::randn(images[0].shape(), {}, &generator));
    }
    const td::Tensor at = td::stack(times).to(ctx.device());
    const td::Tensor noise = td::stack(noises).to(ctx.device());
    const td::Tensor predicted = model(diffusion.add_noise(images, noise, at), at);
    error.update(diffusion.loss(predicted, images, at), static_cast<int64_t>(batch.size()));
  }
  return error.compute();
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const DiffusionFlags& diffusion_flags) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags, diffusion_flags);
  const examples::Diffusion diffusion(ctx.device());

  td::models::DdpmUNet model(diffusion_flags.model);
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  // Pictures are made by an exponential average of the weights, in which the first weights are forgotten sooner.
  const auto average = [ema = diffusion_flags.ema](const td::Tensor& averaged, const td::Tensor& current, int64_t n) {
    const auto updates = static_cast<double>(n);
    return td::lerp(averaged, current, 1 - std::min(ema, (1 + updates) / (10 + updates)));
  };
  AveragedUNet averaged(model, {.avg_fn = average}, diffusion_flags.model);
  td::optim::Adam adam(model.parameters(), {.lr = flags.lr});
  td::data::DataLoader loader(*data.train,
                              {.batch_size = flags.batch_size,
                               .shuffle = true,
                               .num_workers = 1,
                               .drop_last = true,
                               .device = ctx.device(),
                               .transform = td::data::random_horizontal_flip(),
                               .transform_seed = flags.seed,
                               .seed = flags.seed},
                              ctx);
  // Linear warm-up over 5 % of the steps, then cosine decay to 0.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(adam, {.warmup_steps = steps / 20, .total_steps = steps});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "diffusion";
  options.title =
      td::str("DDPM of width ", diffusion_flags.model.width, flags.data.empty() ? " on drawn shapes" : " on CIFAR-10");
  options.items = "images";
  options.folders = {examples::kSamples};
  options.evaluation_set = "test";
  options.max_norm = 1;
  options.after_step = [&] {
    const td::HookHandle whole = ddp.gathered();
    averaged.update_parameters(model);
  };
  options.identity.emplace_back("training images", td::str(data.train->size()));
  td::train::Trainer trainer(ctx, options,
                             {.model = model,
                              .reducer = ddp.reducer(),
                              .optimizer = adam,
                              .schedule = &schedule,
                              .loader = loader,
                              .state_dict = [&] { return averaged.state_dict(); },
                              .load_state_dict = [&](const td::State& state) { averaged.load_state_dict(state); }});
  trainer.note(td::str("DDPM of width ", diffusion_flags.model.width, " on ",
                       td::format_count(ctx.world_size(), "rank"), ", ", data.train->size(), " training and ",
                       data.test->size(), " test images ",
                       flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  trainer.fit(
      [&](const td::data::Batch& batch) {
        const td::Tensor times = td::randint(0, examples::Diffusion::kTimes, {batch.size}, {td::kInt64, ctx.device()});
        const td::Tensor images = batch.input * 2 - 1;
        const td::Tensor noisy = diffusion.add_noise(images, td::randn_like(images), times);
        return diffusion.loss(ddp(noisy, times), images, times);
      },
      [&] {
        td::models::DdpmUNet& network = averaged.module;
        const double error = test_error(network, diffusion, *data.test, ctx);
        if (ctx.rank() == 0) {
          td::Generator generator(kPictureSeed);
          const td::Shape shape = {kPictures, diffusion_flags.model.channels, 32, 32};
          const td::Tensor noise = td::randn(shape, {}, &generator).to(ctx.device());
          const auto predict = [&](const td::Tensor& x, const td::Tensor& times) { return network(x, times); };
          examples::write_samples(options.out, trainer.step(),
                                  diffusion.sample(predict, noise, diffusion_flags.sample, generator));
        }
        return td::train::Evaluation{{"loss", error}};
      });
  if (ctx.rank() == 0) {
    td::io::save_safetensors(options.out + "/averaged.safetensors", averaged.module.state_dict().tensors());
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 10;
  flags.batch_size = 32;
  flags.lr = 2e-3;
  DiffusionFlags diffusion_flags;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a network that turns noise into images (DDPM), on one process or on several.",
       .data_help = "folder with CIFAR-10's binary files; default: generated shapes",
       .batch_help = "images per rank and batch",
       .flags = {examples::fixed_number("--width", "channels of the first level, a multiple of 8",
                                        &diffusion_flags.model.width, 1, 1024),
                 examples::fixed_number(
                     "--levels", "levels of the network: each halves the image, and the lowest has twice the channels",
                     &diffusion_flags.levels, 1, 4),
                 examples::fixed_number("--patch", "side of the squares of pixels that are one position of the network",
                                        &diffusion_flags.model.patch, 1, 4),
                 {.name = "--images",
                  .help = "number of generated training images without --data; a twentieth of it for testing",
                  .value = &diffusion_flags.images,
                  .min = 1},
                 examples::fixed_number("--ema", "decay of the averaged weights", &diffusion_flags.ema, 0, 1),
                 {.name = "--sample-steps",
                  .help = "steps from noise to an image",
                  .value = &diffusion_flags.sample.steps,
                  .min = 1,
                  .max = static_cast<double>(examples::Diffusion::kTimes)},
                 {.name = "--eta",
                  .help = "noise that these steps add: 0 = none; 1 with --sample-steps 1000 = DDPM's",
                  .value = &diffusion_flags.sample.eta,
                  .max = 1}}},
      flags);
  if (status >= 0) return status;
  diffusion_flags.model.multipliers.assign(static_cast<size_t>(diffusion_flags.levels), 1);
  diffusion_flags.model.multipliers.back() = 2;
  return td::distributed::launch(argc, argv,
                                 [&](td::distributed::Context& ctx) { train(ctx, flags, diffusion_flags); });
}
