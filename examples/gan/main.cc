// Trains a generator of handwritten digits and a discriminator against each other, on one process or on several.
//
//     ./bazelw run //examples/gan -- --nproc 2
//     ./bazelw run //examples/gan -- --nproc 2 --data FOLDER_WITH_MNIST_FILES --epochs 30 --save-every 500
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/samples.h>
#include <tandem/models/dcgan.h>
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;    // generated test images do not depend on --seed
constexpr uint64_t kPictureSeed = 0x9a1;  // of the noise of the pictures, which is the same in all of them
constexpr int64_t kPictures = 64;
constexpr int64_t kTestImages = 256;

struct GanFlags {
  td::models::DcganOptions model = {.width = 16, .channels = 1, .levels = 3};
  int64_t images = 20000;
};

struct Datasets {
  std::unique_ptr<td::data::Dataset> train;
  std::unique_ptr<td::data::Dataset> test;
};

Datasets open_data(const examples::TrainingFlags& flags, const GanFlags& gan_flags) {
  using namespace td::data;
  if (flags.data.empty()) {
    return {std::make_unique<DigitsDataset>(gan_flags.images, flags.seed),
            std::make_unique<DigitsDataset>(kTestImages, kTestSeed)};
  }
  return {std::make_unique<MnistDataset>(flags.data, MnistSplit::kTrain),
          std::make_unique<MnistDataset>(flags.data, MnistSplit::kTest)};
}

/// Digits of 28x28 pixels in [0, 1] as images of the networks: 32x32 pixels in [-1, 1].
td::Tensor to_images(const td::Tensor& digits) { return td::pad(digits, {2, 2, 2, 2}) * 2 - 1; }

/// The loss of logits that should say real (1) or generated (0).
td::Tensor loss_of(const td::Tensor& logits, double target) {
  return td::binary_cross_entropy_with_logits(logits, td::full_like(logits, target));
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const GanFlags& gan_flags) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags, gan_flags);
  const int64_t latent = gan_flags.model.latent;

  td::models::Dcgan model(gan_flags.model);
  model.to(ctx.device());
  td::DistributedDataParallel generator(model.generator, ctx.group(), flags.reducer_options());
  td::DistributedDataParallel discriminator(model.discriminator, ctx.group(), flags.reducer_options());
  const td::optim::AdamOptions adam = {.lr = flags.lr, .betas = {0.5, 0.999}};
  td::optim::Adam generator_adam(model.generator.parameters(), adam);
  td::optim::Adam discriminator_adam(model.discriminator.parameters(), adam);
  td::data::DistributedSampler sampler(data.train->size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      *data.train, sampler,
      {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});

  const auto generate = [&](int64_t size) {
    return generator(td::randn({size, latent, 1, 1}, {.device = ctx.device()}));
  };
  // Every step trains the discriminator first, then the generator. A backward reaches only one of them: the other one
  // records nothing.
  const auto discriminator_loss = [&](const td::data::Batch& batch) {
    model.discriminator.requires_grad_(true);
    td::Tensor fake;
    {
      const td::NoGradGuard no_grad;
      fake = generate(batch.size);
    }
    return loss_of(discriminator(to_images(batch.input)), 1) + loss_of(discriminator(fake), 0);
  };
  const auto generator_loss = [&](const td::data::Batch& batch) {
    model.discriminator.requires_grad_(false);
    return loss_of(discriminator(generate(batch.size)), 1);
  };

  td::train::TrainerOptions options = flags.trainer;
  options.name = "gan";
  options.title = td::str("DCGAN of width ", gan_flags.model.width, " on handwritten digits");
  options.items = "images";
  options.folders = {examples::kSamples};
  options.loss_name = "discriminator";
  options.evaluation_set = "probability";
  options.identity.emplace_back("training images", td::str(data.train->size()));
  td::train::Trainer trainer(ctx, options,
                             {.model = model,
                              .reducer = discriminator.reducer(),
                              .optimizer = discriminator_adam,
                              .loader = loader,
                              .further = {{.name = "generator",
                                           .loss = generator_loss,
                                           .reducer = generator.reducer(),
                                           .optimizer = generator_adam}}});
  trainer.note(td::str("DCGAN of width ", gan_flags.model.width, " on ", td::format_count(ctx.world_size(), "rank"),
                       ", ", data.train->size(), " digits ",
                       flags.data.empty() ? "drawn by this program" : "from " + flags.data));

  // After each epoch: a picture of generated digits, and the mean probabilities of being real that the discriminator
  // gives to real and to generated digits.
  td::Generator picture_generator(kPictureSeed);
  const td::Tensor picture_noise = td::randn({kPictures, latent, 1, 1}, {}, &picture_generator).to(ctx.device());
  std::vector<int64_t> indices(static_cast<size_t>(std::min(kTestImages, data.test->size())));
  std::iota(indices.begin(), indices.end(), 0);
  const td::Tensor test_images = to_images(data.test->get_batch(indices).input.to(ctx.device()));
  trainer.fit(discriminator_loss, [&] {
    const td::Tensor images = model.generator(picture_noise);
    if (ctx.rank() == 0) examples::write_samples(options.out, trainer.step(), images);
    const auto probability = [&](const td::Tensor& some) {
      return td::sigmoid(model.discriminator(some).to(td::kFloat32)).mean().item();
    };
    return td::train::Evaluation{{"of real digits", probability(test_images)},
                                 {"of generated digits", probability(images)}};
  });
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 10;
  flags.lr = 5e-4;
  GanFlags gan_flags;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a generator of handwritten digits and a discriminator against each other (DCGAN), on one "
                      "process or on several.",
       .data_help = "folder with MNIST's files; default: generated digits",
       .batch_help = "images per rank and batch",
       .flags = {examples::fixed_number("--width", "channels of the layers next to the image", &gan_flags.model.width,
                                        1, 1024),
                 examples::fixed_number("--latent", "random numbers from which a digit is generated",
                                        &gan_flags.model.latent, 1, 65536),
                 {.name = "--images",
                  .help = "number of generated training images without --data",
                  .value = &gan_flags.images,
                  .min = 1}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, gan_flags); });
}
