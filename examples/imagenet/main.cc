// Trains an image classifier on a folder of PNG and JPEG files, on one process or on several.
//
//     ./bazelw run //tools/draw_images -- images
//     ./bazelw run //examples/imagenet -- --nproc 2 --data images --width 16
//     ./bazelw run //examples/imagenet -- --nproc 8 --data IMAGENET --model resnet50 --size 224 --epochs 90
//
// IMAGENET has the folders train and val, each with one folder of images per class.
#include <tandem/examples/support/classify.h>
#include <tandem/examples/support/flags.h>
#include <tandem/models/resnet.h>
#include <tandem/models/vision_transformer.h>
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;  // generated validation images do not depend on --seed
constexpr int64_t kPictures = 16;       // of the augmented images in the output folder

struct ImageNetFlags {
  std::string model = "resnet18";
  int64_t size = 64;
  int64_t width = 64;
  int64_t patch = 16;
  int64_t images = 5000;
  int64_t workers = 1;
  double min_scale = 0.25;
  double mixup = 0.2;
  double smoothing = 0.1;
  double ema = 0.99;
};

struct Datasets {
  std::unique_ptr<td::data::Dataset> train;
  std::unique_ptr<td::data::Dataset> val;
  int64_t num_classes;
};

Datasets open_data(const examples::TrainingFlags& flags, const ImageNetFlags& own) {
  using namespace td::data;
  if (flags.data.empty()) {
    const ShapesOptions options = {.side = own.size};
    return {std::make_unique<ShapesDataset>(own.images, flags.seed, options),
            std::make_unique<ShapesDataset>(std::max<int64_t>(1, own.images / 10), kTestSeed, options),
            static_cast<int64_t>(ShapesDataset::class_names().size())};
  }
  auto train = std::make_unique<ImageFolder>(flags.data + "/train");
  auto val = std::make_unique<ImageFolder>(flags.data + "/val");
  if (train->classes() != val->classes())
    throw td::ValueError("imagenet: '" + flags.data + "/train' and '" + flags.data + "/val' have different classes");
  const auto num_classes = static_cast<int64_t>(train->classes().size());
  return {std::move(train), std::move(val), num_classes};
}

/// Writes a grid of the model's training images, before normalization.
void write_pictures(const std::string& path, const Datasets& data, const td::data::Transform& augment,
                    const td::data::BatchTransform& mix, uint64_t seed) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < kPictures; ++i) indices.push_back(i * data.train->size() / kPictures);  // of all classes
  td::data::Batch batch = td::data::transform_items(*data.train, indices, augment, seed, 0);
  td::data::ItemRandom random = td::data::batch_random(seed, 0, 0);
  if (mix) batch = mix(std::move(batch), random);
  td::data::write_png(path, td::data::make_grid(batch.input));
}

/// Trains a Model(model_options).
template <class Model, class ModelOptions>
void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const ImageNetFlags& own,
           const Datasets& data, const ModelOptions& model_options) {
  Model model(model_options);
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  // An exponential average of weights and batch norm statistics, which is evaluated and saved. Each rank's statistics
  // are computed from its own images; all ranks continue with rank 0's statistics.
  td::nn::AveragedModel<Model> averaged(model, {.avg_fn = td::nn::get_ema_avg_fn(own.ema), .use_buffers = true},
                                        model_options);
  averaged.eval();
  const auto broadcast_buffers = [&] {
    for (const auto& [name, buffer] : averaged.module.named_buffers()) ctx.group()->broadcast(buffer, 0);
  };
  std::unique_ptr<td::optim::Optimizer> optimizer;
  if (own.model == "vit") {
    optimizer = std::make_unique<td::optim::AdamW>(model.parameters(),
                                                   td::optim::AdamWOptions{.lr = flags.lr, .weight_decay = 0.05});
  } else {
    optimizer = std::make_unique<td::optim::SGD>(
        model.parameters(), td::optim::SGDOptions{.lr = flags.lr, .momentum = 0.9, .weight_decay = 1e-4});
  }

  using namespace td::data;
  const Transform augment =
      chain({random_resized_crop(own.size, {.scale = {own.min_scale, 1}}), random_horizontal_flip(), to_float()});
  const Transform normalization = normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  const Transform val_transform =
      chain({resize(own.size * 256 / 224), center_crop(own.size), to_float(), normalization});
  const BatchTransform mix =
      own.mixup > 0 ? mixup({.num_classes = data.num_classes, .alpha = own.mixup}) : BatchTransform();
  DataLoader loader(*data.train,
                    {.batch_size = flags.batch_size,
                     .shuffle = true,
                     .num_workers = static_cast<int>(own.workers),
                     .drop_last = true,
                     .device = ctx.device(),
                     .transform = chain({augment, normalization}),
                     .batch_transform = mix,
                     .transform_seed = flags.seed,
                     .seed = flags.seed},
                    ctx);
  // Linear warm-up over 5 % of the steps, then cosine decay to 0.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(*optimizer, {.warmup_steps = steps / 20, .total_steps = steps});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "imagenet";
  options.title = td::str(own.model, flags.data.empty() ? " on drawn shapes" : " on images of " + flags.data);
  options.items = "images";
  options.after_step = [&] {
    const td::HookHandle whole = ddp.gathered();
    averaged.update_parameters(model);
  };
  options.identity.emplace_back("training images", td::str(data.train->size()));
  td::train::Trainer trainer(ctx, options,
                             {.model = model,
                              .reducer = ddp.reducer(),
                              .optimizer = *optimizer,
                              .schedule = &schedule,
                              .loader = loader,
                              .state_dict =
                                  [&] {
                                    broadcast_buffers();
                                    return averaged.state_dict();
                                  },
                              .load_state_dict = [&](const td::State& state) { averaged.load_state_dict(state); }});
  trainer.note(td::str(own.model, " on ", td::format_count(ctx.world_size(), "rank"), ", ", data.train->size(),
                       " training and ", data.val->size(), " validation images of ", data.num_classes, " classes ",
                       flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  // Written before the first step too, which fails if the disk is full.
  const auto save_averaged = [&] {
    if (ctx.rank() != 0) return;
    td::io::save_safetensors(options.out + "/averaged.safetensors", averaged.module.state_dict().tensors());
  };
  save_averaged();
  if (ctx.rank() == 0) write_pictures(options.out + "/augmented.png", data, augment, mix, flags.seed);
  trainer.fit(
      [&](const Batch& batch) {
        return td::cross_entropy(ddp(batch.input), batch.target, {.label_smoothing = own.smoothing});
      },
      [&] {
        broadcast_buffers();
        return examples::evaluate_classifier(averaged.module, *data.val, val_transform, ctx);
      });
  save_averaged();
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const ImageNetFlags& own) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags, own);
  const td::models::ResNetOptions resnet = {.num_classes = data.num_classes, .width = own.width};
  if (own.model == "resnet18") {
    train<td::models::ResNet18>(ctx, flags, own, data, resnet);
  } else if (own.model == "resnet50") {
    train<td::models::ResNet50>(ctx, flags, own, data, resnet);
  } else {
    // With --width 64 the "tiny" model of H. Touvron et al., "Training data-efficient image transformers", ICML 2021.
    train<td::models::VisionTransformer>(ctx, flags, own, data,
                                         td::models::VisionTransformerOptions{.image_size = own.size,
                                                                              .patch_size = own.patch,
                                                                              .num_heads = 3,
                                                                              .hidden_dim = 3 * own.width,
                                                                              .mlp_dim = 12 * own.width,
                                                                              .num_classes = data.num_classes});
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.lr = 0.1;
  ImageNetFlags own;
  using examples::ExampleFlag;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains an image classifier on a folder of PNG and JPEG files, on one process or on several.",
       .data_help = "folder with train and val, which have a folder of images per class; default: generated shapes",
       .batch_help = "images per rank and batch",
       .flags = {ExampleFlag{.name = "--model",
                             .help = "resnet18, resnet50, or vit, which needs a learning rate of about 5e-4",
                             .value = &own.model,
                             .choices = {"resnet18", "resnet50", "vit"},
                             .same_on_resume = true},
                 examples::fixed_number(
                     "--size", "height and width of the images that the model gets; vit: a multiple of --patch",
                     &own.size, 8, 1024),
                 examples::fixed_number("--width",
                                        "channels of the first group of layers; vit: a third of the tokens' width",
                                        &own.width, 1, 1024),
                 examples::fixed_number("--patch", "vit: side of the squares of pixels that are one token", &own.patch,
                                        1, 1024),
                 examples::fixed_number("--min-scale", "least area of a random crop, as a fraction of the image",
                                        &own.min_scale, 0.01, 1),
                 examples::fixed_number("--mixup", "mixup's alpha; 0 = no mixup", &own.mixup, 0, 100),
                 examples::fixed_number("--label-smoothing", "share of a label that is spread over all classes",
                                        &own.smoothing, 0, 1),
                 examples::fixed_number("--ema", "decay of the averaged weights, which are evaluated; 0 = no average",
                                        &own.ema, 0, 1),
                 ExampleFlag{.name = "--workers",
                             .help = "threads per rank that read images",
                             .value = &own.workers,
                             .max = 256},
                 ExampleFlag{.name = "--images",
                             .help = "number of generated training images without --data; a tenth of it for validation",
                             .value = &own.images,
                             .min = 1}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, own); });
}
