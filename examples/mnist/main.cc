// Trains a network to classify handwritten digits, on one process or on several.
//
//     ./bazelw run //examples/mnist -- --nproc 2
//     ./bazelw run //examples/mnist -- --nproc 2 --model lenet --data FOLDER_WITH_MNIST_FILES --out results
#include <tandem/examples/models/lenet.h>
#include <tandem/examples/models/mlp.h>
#include <tandem/examples/support/classify.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/training_run.h>
#include <tandem/tandem.h>

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
  if (name == "lenet") return std::make_unique<models::LeNet>();
  return std::make_unique<models::Mlp>();
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const std::string& network) {
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags);

  const std::unique_ptr<td::nn::Layer> model = make_model(network);
  model->to(ctx.device());
  td::DistributedDataParallel ddp(*model, ctx.group(), examples::reducer_options(flags));
  td::optim::SGD sgd(model->parameters(), {.lr = flags.lr, .momentum = 0.9});
  td::data::DistributedSampler sampler(data.train->size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      *data.train, sampler,
      {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  examples::check_batches("mnist", *data.train, "training images", loader, sampler, ctx, flags);

  examples::TrainingRun run(ctx, flags,
                            {.name = "mnist",
                             .title = td::str(network, " on handwritten digits"),
                             .items = "images",
                             .items_per_batch = flags.batch_size,
                             .batches_per_epoch = loader.size(),
                             .validation = "test",
                             .identity = {{"--model", network}, {"training images", td::str(data.train->size())}}},
                            {.model = *model, .reducer = ddp.reducer(), .optimizer = sgd, .sampler = sampler});
  run.note(td::str(network, " on ", examples::count(ctx.world_size(), "rank"), ", ", data.train->size(),
                   " training and ", data.test->size(), " test images ",
                   flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  run.start();

  examples::Batches batches(loader);
  while (run.has_next_step()) {
    sgd.zero_grad();
    for (int64_t micro_batch = 1; micro_batch <= flags.accumulate; ++micro_batch) {
      const td::data::Batch& batch = batches.next();
      td::Tensor loss;
      {
        const examples::Amp amp(flags);
        loss = td::cross_entropy(ddp(batch.images), batch.labels);
      }
      // Only the last micro-batch of a step reduces gradients.
      const td::HookHandle no_sync = micro_batch < flags.accumulate ? ddp.no_sync() : td::HookHandle();
      run.backward(loss);
    }
    run.optimizer_step();
    run.end_step([&] { return examples::evaluate_classifier(*model, *data.test, {}, ctx, flags); });
  }
  run.finish();
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
       .flags = {{.name = "--model", .help = "network", .value = &network, .choices = {"mlp", "lenet"}}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, network); });
}
