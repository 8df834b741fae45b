// Trains a residual network to classify 32x32 color images, on one process or on several.
//
//     ./bazelw run //examples/resnet_cifar -- --nproc 2 --width 16
//     ./bazelw run //examples/resnet_cifar -- --nproc 2 --data FOLDER_WITH_CIFAR_10 --epochs 30 --save-every 500
#include <tandem/examples/support/classify.h>
#include <tandem/examples/support/flags.h>
#include <tandem/models/resnet.h>
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <memory>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;  // generated test images do not depend on --seed

struct ResNetFlags {
  int64_t width = 64;
  int64_t images = 10000;
};

struct Datasets {
  std::unique_ptr<td::data::Dataset> train;
  std::unique_ptr<td::data::Dataset> test;
  td::data::Transform normalize;
};

Datasets open_data(const examples::TrainingFlags& flags, const ResNetFlags& resnet_flags) {
  using namespace td::data;
  if (flags.data.empty()) {
    return {std::make_unique<ShapesDataset>(resnet_flags.images, flags.seed),
            std::make_unique<ShapesDataset>(std::max<int64_t>(1, resnet_flags.images / 10), kTestSeed),
            normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25})};
  }
  return {std::make_unique<CifarDataset>(flags.data, CifarSplit::kTrain),
          std::make_unique<CifarDataset>(flags.data, CifarSplit::kTest), normalize_cifar()};
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const ResNetFlags& resnet_flags) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags, resnet_flags);

  td::models::ResNet18 model({.num_classes = 10, .width = resnet_flags.width, .small_images = true});
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  td::optim::SGD sgd(model.parameters(), {.lr = flags.lr, .momentum = 0.9, .weight_decay = 5e-4});
  td::data::DataLoader loader(
      *data.train,
      {.batch_size = flags.batch_size,
       .shuffle = true,
       .num_workers = 1,
       .drop_last = true,
       .device = ctx.device(),
       .transform = td::data::chain({td::data::random_crop(4), td::data::random_horizontal_flip(), data.normalize}),
       .transform_seed = flags.seed,
       .seed = flags.seed},
      ctx);
  // Linear warm-up over 5 % of the steps, then cosine decay to 0.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(sgd, {.warmup_steps = steps / 20, .total_steps = steps});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "resnet_cifar";
  options.title =
      td::str("resnet18 of width ", resnet_flags.width, flags.data.empty() ? " on drawn shapes" : " on CIFAR-10");
  options.items = "images";
  options.evaluation_set = "test";
  options.identity.emplace_back("training images", td::str(data.train->size()));
  td::train::Trainer trainer(
      ctx, options,
      {.model = model, .reducer = ddp.reducer(), .optimizer = sgd, .schedule = &schedule, .loader = loader});
  trainer.note(td::str("resnet18 of width ", resnet_flags.width, " on ", td::format_count(ctx.world_size(), "rank"),
                       ", ", data.train->size(), " training and ", data.test->size(), " test images ",
                       flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  trainer.fit([&](const td::data::Batch& batch) { return td::cross_entropy(ddp(batch.input), batch.target); },
              [&] { return examples::evaluate_classifier(model, *data.test, data.normalize, ctx); });
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.lr = 0.1;
  ResNetFlags resnet_flags;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a residual network of 18 layers to classify 32x32 images, on one process or on several.",
       .data_help = "folder with CIFAR-10's binary files; default: generated shapes",
       .batch_help = "images per rank and batch",
       .flags = {examples::fixed_number("--width", "channels of the first group of layers", &resnet_flags.width, 1,
                                        1024),
                 {.name = "--images",
                  .help = "number of generated training images without --data; a tenth of it for testing",
                  .value = &resnet_flags.images,
                  .min = 1}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, resnet_flags); });
}
