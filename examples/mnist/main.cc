// Classifies handwritten digits; trains on one process or on several.
//
//     ./bazelw run //examples/mnist -- --nproc 2
//     ./bazelw run //examples/mnist -- --nproc 2 --data FOLDER_WITH_MNIST_FILES --out results
#include <tandem/examples/models/mlp.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/progress.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

namespace td = tandem;

namespace {

constexpr int64_t kTracedSteps = 30;
constexpr uint64_t kTestSeed = 0x7e57;  // of drawn test images, whatever --seed is

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

/// The share of test images that the model classifies rightly.  Each image is looked at by one rank.
double accuracy(models::Mlp& model, const td::data::Dataset& test, td::distributed::Context& ctx) {
  const td::NoGradGuard no_grad;
  model.eval();
  td::data::DistributedSampler sampler(
      test.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(test, sampler, {.batch_size = 256, .device = ctx.device()});
  td::Tensor right = td::zeros({}, {td::kInt64, ctx.device()});
  for (auto& batch : loader) {
    right.add_(td::eq(model(batch.images).argmax(1), batch.labels).sum());
  }
  ctx.group()->all_reduce(right);
  model.train();
  return static_cast<double>(right.item<int64_t>()) / static_cast<double>(test.size());
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags) {
  const bool is_rank0 = ctx.rank() == 0;
  td::manual_seed(flags.seed);
  const Datasets data = open_data(flags);

  models::Mlp model;
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group());
  td::optim::SGD sgd(model.parameters(), {.lr = flags.lr, .momentum = 0.9});
  td::data::DistributedSampler sampler(data.train->size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      *data.train, sampler,
      {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  if (loader.size() == 0) {
    throw td::ValueError(td::str("mnist: no step to train: ", data.train->size(), " training images over ",
                                 examples::count(ctx.world_size(), "rank"), " are ", sampler.size(),
                                 " per rank, fewer than --batch-size ", flags.batch_size));
  }
  if (is_rank0) examples::make_output_folders(flags);

  int64_t total = flags.epochs * loader.size();
  if (flags.max_steps > 0) total = std::min(total, flags.max_steps);
  const int64_t global_batch = flags.batch_size * ctx.world_size();
  examples::Progress progress(is_rank0, total, global_batch);
  progress.note(td::str(flags.model, " on ", examples::count(ctx.world_size(), "rank"), ", ", data.train->size(),
                        " training and ", data.test->size(), " test images ",
                        flags.data.empty() ? "drawn by this program" : "from " + flags.data));
  progress.note(td::str("batch ", flags.batch_size, " per rank, ", global_batch, " over all ranks; ",
                        examples::count(total, "step")));

  bool tracing = !flags.trace.empty();
  if (tracing) td::start_trace();
  const auto end_trace = [&] {
    tracing = false;
    const auto events = td::distributed::gather_trace(*ctx.group());
    ddp.reducer().leave_out_step();
    if (!is_rank0) return;
    td::profile::write_chrome_trace(flags.trace, events);
    progress.note(td::str("trace of the first steps: ", flags.trace, " (open it at ui.perfetto.dev)"));
  };

  double share = 0;
  for (int64_t epoch = 0; progress.steps() < total && !ctx.should_stop(); ++epoch) {
    for (auto& batch : loader) {
      double loss_value = 0;
      {
        const td::TraceSpan span("step", "step");
        sgd.zero_grad();
        const td::Tensor loss = td::cross_entropy(ddp(batch.images), batch.labels);
        loss.backward();
        sgd.step();
        loss_value = loss.item();
      }
      progress.step(epoch, loss_value);
      if (!std::isfinite(loss_value)) {
        throw td::ValueError(td::str("mnist: the loss of step ", progress.steps(),
                                     " is no finite number: the training diverged, try a smaller --lr than ",
                                     flags.lr));
      }
      if (tracing && progress.steps() == kTracedSteps) end_trace();
      if (progress.steps() == total || ctx.should_stop()) break;
    }
    if (ctx.should_stop()) break;
    share = accuracy(model, *data.test, ctx);
    ddp.reducer().leave_out_step();
    progress.note(td::str("epoch ", epoch + 1, ": loss ", examples::fixed(progress.loss(), 4), ", test accuracy ",
                          examples::fixed(100 * share, 2), " %"));
  }
  if (tracing) end_trace();  // a run of fewer steps

  if (!is_rank0) return;
  const std::string path = (std::filesystem::path(flags.out) / "model.safetensors").lexically_normal().string();
  td::io::save_safetensors(path, model.state_dict().tensors());
  if (ctx.should_stop()) {
    progress.note(td::str("stopped by a signal after step ", progress.steps(), " of ", total));
  } else {
    progress.note(
        td::str("test accuracy ", examples::fixed(100 * share, 2), " % after ", examples::count(total, "step")));
  }
  const td::distributed::OverlapReport report = ddp.reducer().report();
  if (report.steps > 0) progress.note(td::distributed::to_string(report));
  progress.note(td::str("saved ", path));
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  const int status = examples::parse_training_flags(
      argc, argv, "Trains a network to classify handwritten digits, on one process or on several.", "mlp", flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags); });
}
