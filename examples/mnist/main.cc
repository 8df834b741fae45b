// Trains a network to classify handwritten digits, on one process or on several.
//
//     ./bazelw run //examples/mnist -- --nproc 2
//     ./bazelw run //examples/mnist -- --nproc 2 --model lenet --data FOLDER_WITH_MNIST_FILES --out results
#include <tandem/examples/support/classify.h>
#include <tandem/examples/support/flags.h>
#include <tandem/models/lenet.h>
#include <tandem/models/mlp.h>
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <memory>
#include <string>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;  // generated test images do not depend on --seed

struct Datasets {
  std::unique_ptr<td::data::Dataset> train;
  std::unique_ptr<td::data::Dataset> test;
};

Datasets open_data(const examples::TrainingFlags& flags) {
  using namespace td::data;
  if (flags.data.empty()) {
    return {std::make_unique<DigitsDataset>(20000, flags.seed), std::make_unique<DigitsDataset>(2000, kTestSeed)};
  }
  const MnistOptions options = {.normalize = true};
  return {std::make_unique<MnistDataset>(flags.data, MnistSplit::kTrain, options),
          std::make_unique<MnistDataset>(flags.data, MnistSplit::kTest, options)};
}

std::unique_ptr<td::nn::Layer> make_model(const std::string& name) {
  if (name == "lenet") return std::make_unique<td::models::LeNet>();
  return std::make_unique<td::models::Mlp>();
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const std::string& network) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags);

  const std::unique_ptr<td::nn::Layer> model = make_model(network);
  model->to(ctx.device());
  td::DistributedDataParallel ddp(*model, ctx.group(), flags.reducer_options());
  td::optim::SGD sgd(model->parameters(), {.lr = flags.lr, .momentum = 0.9});
  td::data::DistributedSampler sampler(data.train->size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      *data.train, sampler,
      {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "mnist";
  options.title = td::str(network, " on handwritten digits");
  options.items = "images";
  options.evaluation_set = "test";
  options.identity.emplace_back("training images", td::str(data.train->size()));
  td::train::Trainer trainer(ctx, options,
                             {.model = *model, .reducer = ddp.reducer(), .optimizer = sgd, .loader = loader});
  trainer.note(td::str(network, " on ", td::format_count(ctx.world_size(), "rank"), ", ", data.train->size(),
                       " training and ", data.test->size(), " test images ",
                       flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  trainer.fit([&](const td::data::Batch& batch) { return td::cross_entropy(ddp(batch.input), batch.target); },
              [&] { return examples::evaluate_classifier(*model, *data.test, {}, ctx); });
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  std::string network = "mlp";
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a network to classify handwritten digits, on one process or on several.",
       .data_help = "folder with MNIST's files; default: generated digits",
       .batch_help = "images per rank and batch",
       .flags = {{.name = "--model",
                  .help = "network",
                  .value = &network,
                  .choices = {"mlp", "lenet"},
                  .same_on_resume = true}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, network); });
}
