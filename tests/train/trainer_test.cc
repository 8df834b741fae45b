// Trainer: the same bits as a plain loop, resuming, evaluation, and errors.
#include <unistd.h>

#include <tandem/tandem.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/trainer.h>

namespace td = tandem;
namespace fs = std::filesystem;

namespace {

using tandem::testing::error_text;
using tandem::testing::TemporaryFolder;
using td::train::Evaluation;
using td::train::Trainer;
using td::train::TrainerComponents;
using td::train::TrainerOptions;

struct Net : td::nn::Layer {
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 784, 8);
  td::nn::Dropout& dropout = add<td::nn::Dropout>("dropout", 0.25);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 8, 10);
  td::Tensor forward(const td::Tensor& x) override { return fc2(dropout(td::relu(fc1(x.flatten(1))))); }
};

/// What a rank trains: 12 batches of 4 digits per epoch on one rank.
struct Job {
  explicit Job(td::distributed::Context& ctx, td::distributed::ReducerOptions options = {})
      : digits((td::manual_seed(1), 50), 1), ddp(net, ctx.group(), std::move(options)) {
    sampler.emplace(digits.size(), ctx.rank(), ctx.world_size(), td::data::DistributedSamplerOptions{.seed = 3});
    loader.emplace(digits, *sampler, td::data::DataLoaderOptions{.batch_size = 4, .drop_last = true});
  }
  td::Tensor loss(const td::data::Batch& batch) { return td::cross_entropy(ddp(batch.input), batch.target); }
  TrainerComponents components() {
    return {.model = net, .reducer = ddp.reducer(), .optimizer = sgd, .schedule = &schedule, .loader = *loader};
  }
  std::vector<float> weights() const { return net.fc1.weight.to_vector<float>(); }

  td::data::DigitsDataset digits;
  Net net;
  td::DistributedDataParallel<Net> ddp;
  td::optim::SGD sgd{net.parameters(), {.lr = 0.1, .momentum = 0.9}};
  td::optim::StepLR schedule{sgd, {.step_size = 3, .gamma = 0.5}};
  std::optional<td::data::DistributedSampler> sampler;
  std::optional<td::data::DataLoader> loader;
};

/// Trains on `num_ranks` threads with these options. `use` is called on each rank after the training.
void train(int num_ranks, const TrainerOptions& options, const std::function<void(Job&, Trainer&)>& use = {}) {
  td::distributed::run_threads(num_ranks, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    Trainer trainer(ctx, options, job.components());
    trainer.fit([&](const td::data::Batch& batch) { return job.loss(batch); });
    if (use) use(job, trainer);
  });
}

TEST(Trainer, TrainsTheBitsOfAPlainLoop) {
  const TemporaryFolder folder;
  constexpr int64_t kAccumulate = 2;
  constexpr double kMaxNorm = 0.5;
  constexpr int kSteps = 8;  // more than an epoch
  std::vector<float> plain;
  td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    std::optional<td::data::DataLoader::Iterator> batch(job.loader->begin());
    for (int step = 0; step < kSteps; ++step) {
      job.sgd.zero_grad();
      for (int64_t i = 0; i < kAccumulate; ++i) {
        if (*batch == job.loader->end()) batch.emplace(job.loader->begin());
        const td::Tensor loss = job.loss(**batch) * (1.0 / kAccumulate);
        const td::HookHandle no_sync = i + 1 < kAccumulate ? job.ddp.no_sync() : td::HookHandle();
        loss.backward();
        ++*batch;
      }
      td::optim::clip_grad_norm_(job.net.parameters(), kMaxNorm);
      job.sgd.step();
      job.schedule.step();
    }
    if (ctx.rank() == 0) plain = job.weights();
  });
  const TrainerOptions options = {
      .epochs = 9, .max_steps = kSteps, .accumulate = kAccumulate, .max_norm = kMaxNorm, .out = folder / "out"};
  train(2, options, [&](Job& job, Trainer& trainer) {
    EXPECT_EQ(trainer.step(), kSteps);
    EXPECT_EQ(job.weights(), plain);
  });
}

TEST(Trainer, ResumedTrainingEndsWithTheSameBytes) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& out, int64_t max_steps, bool resume) {
    std::vector<double> sums;  // a state of the caller: the sum of the weights after each step
    td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
      Job job(ctx);
      double sum = 0;
      TrainerComponents components = job.components();
      components.state_dict = [&] {
        td::State state;
        state.set("sum", sum);
        return state;
      };
      components.load_state_dict = [&](const td::State& state) { sum = state.get<double>("sum"); };
      TrainerOptions options = {.epochs = 9, .max_steps = max_steps, .out = out, .save_every = 4, .resume = resume};
      options.after_step = [&] { sum += job.net.fc2.weight.sum().item(); };
      Trainer trainer(ctx, options, components);
      trainer.fit([&](const td::data::Batch& batch) { return job.loss(batch); },
                  [&] {
                    return Evaluation{{"loss", 0.5}, {"f1", 0.25}};
                  });
      if (ctx.rank() == 0) sums.push_back(sum);
    });
    return sums.at(0);
  };
  const double whole = run(folder / "whole", 15, false);
  run(folder / "parts", 7, false);
  EXPECT_EQ(run(folder / "parts", 15, true), whole);
  const std::string weights = tandem::testing::read_file(folder / "whole/model.safetensors");
  EXPECT_GT(weights.size(), 784u * 8 * 4);
  EXPECT_TRUE(tandem::testing::read_file(folder / "parts/model.safetensors") == weights);
  for (const auto& entry : fs::directory_iterator(folder / "whole/events")) {
    const std::string events = tandem::testing::read_file(entry.path());
    EXPECT_NE(events.find("f1/validation"), std::string::npos);
    EXPECT_NE(events.find("learning rate"), std::string::npos);
  }
  EXPECT_ERROR(td::ValueError, train(2, {.out = folder / "parts"}),
               "Trainer: '" + (folder / "parts/checkpoints") +
                   "' contains checkpoints; continue from them with resume, or choose another out");
}

/// Two networks with an optimizer each. The loss of the second depends on the first, as it is after its step.
struct Pair : td::nn::Module {
  Net& first = add<Net>("first");
  Net& second = add<Net>("second");
};

struct PairJob {
  explicit PairJob(td::distributed::Context& ctx)
      : job(ctx), first(pair.first, ctx.group()), second(pair.second, ctx.group()) {}
  td::Tensor first_loss(const td::data::Batch& batch) { return td::cross_entropy(first(batch.input), batch.target); }
  td::Tensor second_loss(const td::data::Batch& batch) {
    return td::cross_entropy(second(batch.input) + pair.first(batch.input).detach(), batch.target);
  }
  TrainerComponents components() {
    TrainerComponents result = {.model = pair, .reducer = first.reducer(), .optimizer = sgd, .loader = *job.loader};
    result.further.push_back({.name = "second",
                              .loss = [this](const td::data::Batch& batch) { return second_loss(batch); },
                              .reducer = second.reducer(),
                              .optimizer = adam,
                              .schedule = &schedule});
    return result;
  }
  std::vector<float> weights() const {
    std::vector<float> all = pair.first.fc1.weight.to_vector<float>();
    const auto more = pair.second.fc1.weight.to_vector<float>();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Job job;  // for its data
  Pair pair;
  td::DistributedDataParallel<Net> first;
  td::DistributedDataParallel<Net> second;
  td::optim::SGD sgd{pair.first.parameters(), {.lr = 0.1, .momentum = 0.9}};
  td::optim::Adam adam{pair.second.parameters(), {.lr = 0.01}};
  td::optim::StepLR schedule{adam, {.step_size = 3, .gamma = 0.5}};
};

/// Trains two networks on two threads. Returns rank 0's weights.
std::vector<float> train_pair(const TrainerOptions& options) {
  std::vector<float> weights;
  td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
    PairJob job(ctx);
    Trainer trainer(ctx, options, job.components());
    trainer.fit([&](const td::data::Batch& batch) { return job.first_loss(batch); });
    if (ctx.rank() == 0) weights = job.weights();
  });
  return weights;
}

TEST(Trainer, ErrorFeedbackIsKeptWithOtherNumbersOfRanks) {
  const TemporaryFolder folder;
  std::vector<float> expected;  // the mean over the ranks that saved
  for (const int num_ranks : {2, 3, 1}) {
    td::distributed::run_threads(num_ranks, [&](td::distributed::Context& ctx) {
      Job job(ctx, {.hooks = {td::distributed::power_sgd({.rank = 1, .start_step = 0})}});
      const TrainerOptions options = {
          .max_steps = 4, .out = folder / "run", .save_every = 4, .resume = !expected.empty()};
      Trainer trainer(ctx, options, job.components());
      trainer.fit([&](const td::data::Batch& batch) { return job.loss(batch); });
      const td::State state = job.ddp.reducer().state_dict();
      const td::Tensor error = state.get<td::Tensor>("hook 0.memory.fc1.weight.error");
      ctx.group()->all_reduce(error, td::distributed::ReduceOp::kAvg);
      if (ctx.rank() != 0) return;
      if (expected.empty()) expected = error.to_vector<float>();
      EXPECT_GT(error.abs().amax({0, 1}).item(), 1e-3);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(error.to_vector<float>()[i], expected[i], 1e-8);
    });
  }
}

TEST(Trainer, SeveralObjectivesTrainTheBitsOfAPlainLoop) {
  const TemporaryFolder folder;
  constexpr double kMaxNorm = 0.5;
  std::vector<float> plain;
  td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
    PairJob job(ctx);
    auto position = job.job.loader->begin();
    for (int step = 0; step < 3; ++step) {
      const td::data::Batch batches[] = {*position, *++position};
      ++position;
      const auto train_one = [&](auto& ddp, auto& optimizer, const auto& loss) {
        optimizer.zero_grad();
        {
          const td::HookHandle no_sync = ddp.no_sync();
          (loss(batches[0]) * 0.5).backward();
        }
        (loss(batches[1]) * 0.5).backward();
        td::optim::clip_grad_norm_(optimizer.parameters(), kMaxNorm);
        optimizer.step();
      };
      train_one(job.first, job.sgd, [&](const td::data::Batch& batch) { return job.first_loss(batch); });
      train_one(job.second, job.adam, [&](const td::data::Batch& batch) { return job.second_loss(batch); });
      job.schedule.step();
    }
    if (ctx.rank() == 0) plain = job.weights();
  });
  EXPECT_EQ(train_pair({.max_steps = 3, .accumulate = 2, .max_norm = kMaxNorm, .out = folder / "out"}), plain);
}

TEST(Trainer, SeveralObjectivesResumeWithTheSameBytes) {
  const TemporaryFolder folder;
  for (const auto amp : {std::optional<td::DType>(), std::optional(td::kFloat16)}) {
    const std::string name = amp ? "amp" : "plain";
    const auto options = [&](const std::string& out, int64_t max_steps) {
      return TrainerOptions{.loss_name = "first",
                            .epochs = 9,
                            .max_steps = max_steps,
                            .amp = amp,
                            .out = folder / (name + out),
                            .save_every = 4,
                            .resume = true};
    };
    const std::vector<float> whole = train_pair(options("whole", 10));
    train_pair(options("parts", 4));
    EXPECT_EQ(train_pair(options("parts", 10)), whole);
    const std::string chart = tandem::testing::read_file(folder / (name + "parts/loss.svg"));
    EXPECT_NE(chart.find(">first</text>"), std::string::npos);
    EXPECT_NE(chart.find(">second</text>"), std::string::npos);
  }
}

TEST(Trainer, NamesOfLossesAreChecked) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    PairJob job(ctx);
    const auto error = [&](const std::string& first, const std::string& second, bool has_loss) {
      TrainerComponents components = job.components();
      components.further[0].name = second;
      if (!has_loss) components.further[0].loss = nullptr;
      return error_text<td::ValueError>(
          [&] { Trainer trainer(ctx, {.loss_name = first, .out = folder / "out"}, components); });
    };
    EXPECT_EQ(error("", "b", true), "Trainer: the name of a loss is '', expected a text without '.'");
    EXPECT_EQ(error("a", "b.c", true), "Trainer: the name of a loss is 'b.c', expected a text without '.'");
    EXPECT_EQ(error("a", "a", true), "Trainer: two losses have the name 'a'; name them by loss_name and further");
    EXPECT_EQ(error("a", "b", false), "Trainer: the objective 'b' has no loss, expected a function");
    EXPECT_FALSE(fs::exists(folder / "out"));
  });
}

TEST(Trainer, FolderThatHostsDoNotShareIsRejectedOrNamed) {
  const TemporaryFolder folder;
  int64_t last_step = 0;
  const auto train_apart = [&](int64_t save_every, bool resume) {
    td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
      Job job(ctx);
      Trainer trainer(
          ctx,
          {.out = folder / td::str("host", ctx.rank()), .save_every = save_every, .resume = resume, .verbose = false},
          job.components());
      trainer.fit([&](const td::data::Batch& batch) {
        if (trainer.step() == 1) ctx.request_stop();
        if (ctx.rank() == 0) last_step = trainer.step() + 1;
        return job.loss(batch);
      });
    });
  };
  char host[64] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  const std::string unshared =
      td::str("/checkpoints': what rank 0 on ", host,
              " writes is not visible to, or the folder not writable for, rank 1 on ", host, "; ");
  // The error is of any rank, and names its own folder.
  const auto expect_rejected = [&](int64_t save_every, bool resume) {
    const std::string text = error_text<td::IoError>([&] { train_apart(save_every, resume); });
    const size_t folder_end = text.find("/checkpoints'");
    EXPECT_EQ(text.substr(0, folder_end - 1),
              "Trainer: the ranks do not share the checkpoint folder '" + (folder / "host"));
    EXPECT_EQ(text.substr(folder_end),
              td::str(unshared, "training is not started\n  choose an out on a file system that all hosts share"));
  };
  expect_rejected(5, false);
  expect_rejected(0, true);
  EXPECT_FALSE(fs::exists(folder / "host0/checkpoints"));
  testing::internal::CaptureStderr();
  const std::string unsaved = error_text<td::IoError>([&] { train_apart(0, false); });
  EXPECT_EQ(unsaved, td::str("Trainer: the checkpoint of the last step, ", last_step, ", could not be saved in '",
                             folder / "host0/checkpoints", "'; the trained weights are saved to '",
                             folder / "host0/model.safetensors", "'"));
  EXPECT_NE(testing::internal::GetCapturedStderr().find(unshared + "a signal will not save a checkpoint\n"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(folder / "host0/model.safetensors"));
}

TEST(Trainer, FilesOfKilledChecksAreRemoved) {
  const TemporaryFolder folder;
  for (const char* name : {"/checkpoints", "/events"}) fs::create_directory(folder.path() + name);
  const std::vector<std::string> left = {"model.safetensors.trial", "model.safetensors.trial.tmp0", "events/.trial",
                                         "checkpoints/.trial-5", "checkpoints/.trial-5-1"};
  for (const std::string& name : left) tandem::testing::write_file(folder / name, "x");
  train(2, {.max_steps = 1, .out = folder.path()});
  for (const std::string& name : left) EXPECT_FALSE(fs::exists(folder / name)) << name;
}

TEST(Trainer, SecondTrainingInOneFolderIsRejected) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    const auto rejection = [&] {
      return error_text<td::StateError>([&] { Trainer(ctx, {.out = folder / "out"}, job.components()); });
    };
    Trainer trainer(ctx, {.out = folder / "out", .verbose = false}, job.components());
    const std::string text = rejection();
    EXPECT_TRUE(text.starts_with(
        td::str("Trainer: '", folder / "out", "' is in use by another run, process ", getpid(), " on ")))
        << text;
    EXPECT_TRUE(text.ends_with("\n  wait until it ends, or choose another folder")) << text;
    trainer.fit([&](const td::data::Batch& batch) { return job.loss(batch); });
    Trainer(ctx, {.out = folder / "out"}, job.components());
  });
}

TEST(Trainer, OtherSettingsAreListedAndRejectedOnResume) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  train(1, {.max_steps = 2, .out = out, .save_every = 2, .identity = {{"learning rate", "0.1"}, {"model", "a"}}});
  const TrainerOptions options = {.name = "digits",
                                  .max_steps = 4,
                                  .accumulate = 2,
                                  .max_norm = 1.5,
                                  .amp = td::kBFloat16,
                                  .out = out,
                                  .resume = true,
                                  .identity = {{"learning rate", "0.2"}, {"model", "a"}, {"width", "8"}}};
  EXPECT_ERROR(td::ValueError, train(1, options),
               "digits: the checkpoints in '" + out +
                   "/checkpoints' were saved with other settings\n"
                   "  learning rate  checkpoint: 0.1, now: 0.2\n"
                   "  width          checkpoint: missing, now: 8\n"
                   "  accumulate     checkpoint: 1, now: 2\n"
                   "  max_norm       checkpoint: 0, now: 1.5\n"
                   "  amp            checkpoint: none, now: bfloat16\n"
                   "  use the checkpoint's settings, or choose another out");
}

TEST(Trainer, EvaluationRunsInEvaluationModeWithoutGradients) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    int num_evaluations = 0;
    bool is_training = true;
    Trainer trainer(ctx, {.max_steps = 5, .amp = td::kBFloat16, .evaluate_every = 2, .out = folder / "out"},
                    job.components());
    trainer.fit(
        [&](const td::data::Batch& batch) {
          is_training = is_training && job.net.is_training() && td::is_grad_enabled();
          const td::Tensor logits = job.ddp(batch.input);
          EXPECT_EQ(logits.dtype(), td::kBFloat16);
          return td::cross_entropy(logits, batch.target);
        },
        [&] {
          EXPECT_FALSE(job.net.dropout.is_training());
          EXPECT_FALSE(td::is_grad_enabled());
          EXPECT_EQ(job.net(td::ones({1, 784})).dtype(), td::kBFloat16);
          ++num_evaluations;
          return Evaluation{{"loss", 1}};
        });
    EXPECT_TRUE(is_training);
    EXPECT_TRUE(job.net.is_training());
    EXPECT_EQ(num_evaluations, 3);  // after steps 2 and 4, and after the last one
  });
}

TEST(Trainer, FrozenModulesStayInEvaluationMode) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    job.net.dropout.eval();
    Trainer trainer(ctx, {.max_steps = 4, .evaluate_every = 1, .out = folder / "out"}, job.components());
    trainer.fit(
        [&](const td::data::Batch& batch) {
          EXPECT_FALSE(job.net.dropout.is_training());
          return job.loss(batch);
        },
        [] {
          return Evaluation{{"loss", 1}};
        });
    EXPECT_TRUE(job.net.is_training());
    EXPECT_FALSE(job.net.dropout.is_training());
  });
}

TEST(Trainer, InfiniteGradientsInFloat16SkipTheStep) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    std::vector<std::vector<float>> weights = {job.weights()};
    TrainerOptions options = {.max_steps = 2, .amp = td::kFloat16, .out = folder / "out"};
    options.after_step = [&] { weights.push_back(job.weights()); };
    Trainer trainer(ctx, options, job.components());
    trainer.fit([&](const td::data::Batch& batch) {
      const td::Tensor loss = job.loss(batch);
      return trainer.step() == 0 ? loss * 1e36 : loss;  // finite, but not times the loss scale
    });
    EXPECT_EQ(weights.at(1), weights[0]);
    EXPECT_NE(weights.at(2), weights[0]);
  });
}

TEST(Trainer, NonFiniteLossThrows) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    Trainer trainer(ctx, {.out = folder / "out"}, job.components());
    const auto loss = [&](const td::data::Batch& batch) {
      return job.loss(batch) * (trainer.step() < 2 ? 1 : std::numeric_limits<double>::infinity());
    };
    EXPECT_ERROR(
        td::ValueError, trainer.fit(loss),
        "Trainer: the loss of step 3 is not finite: the training diverged; try a smaller learning rate than 0.05");
  });
}

TEST(Trainer, StopRequestSavesACheckpoint) {
  const TemporaryFolder folder;
  td::distributed::run_threads(2, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    TrainerOptions options = {.epochs = 1000, .out = folder / "out"};
    Trainer trainer(ctx, options, job.components());
    trainer.fit([&](const td::data::Batch& batch) {
      if (trainer.step() == 3 && ctx.rank() == 1) ctx.request_stop();
      return job.loss(batch);
    });
    EXPECT_GE(trainer.step(), 4);
    EXPECT_LE(trainer.step(), 5);
  });
  EXPECT_TRUE(fs::exists(folder / "out/checkpoints/latest"));
  EXPECT_TRUE(fs::exists(folder / "out/model.safetensors"));
}

TEST(Trainer, TotalStepsCountsStepsUpToTheLimit) {
  EXPECT_EQ((TrainerOptions{.epochs = 3}.total_steps(7)), 21);
  EXPECT_EQ((TrainerOptions{.epochs = 3, .accumulate = 2}.total_steps(7)), 12);
  EXPECT_EQ((TrainerOptions{.epochs = 3, .max_steps = 5}.total_steps(7)), 5);
  EXPECT_EQ((TrainerOptions{.accumulate = 9}.total_steps(7)), 1);
}

TEST(Trainer, OptionsOutOfRangeThrow) {
  const TemporaryFolder folder;
  const auto error = [&](TrainerOptions options) {
    if (options.out == "results") options.out = folder / "out";
    return error_text<td::ValueError>([&] { train(1, options); });
  };
  EXPECT_EQ(error({.items_per_sample = 0}), "Trainer: items_per_sample is 0, expected at least 1");
  EXPECT_EQ(error({.epochs = 0}), "Trainer: epochs is 0, expected at least 1");
  EXPECT_EQ(error({.max_steps = -1}), "Trainer: max_steps is -1, expected at least 0");
  EXPECT_EQ(error({.accumulate = 0}), "Trainer: accumulate is 0, expected at least 1");
  EXPECT_EQ(error({.max_norm = -0.5}), "Trainer: max_norm is -0.5, expected at least 0");
  EXPECT_EQ(error({.amp = td::kFloat32}), "Trainer: amp is float32, expected float16 or bfloat16");
  EXPECT_EQ(error({.name = "digits", .evaluate_every = -1}), "digits: evaluate_every is -1, expected at least 0");
  EXPECT_EQ(error({.save_every = -1}), "Trainer: save_every is -1, expected at least 0");
  EXPECT_EQ(error({.log_every = -1}), "Trainer: log_every is -1, expected at least 0");
  EXPECT_EQ(error({.out = ""}), "Trainer: out is empty, expected a folder");
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Trainer, TooFewSamplesForOneBatchThrow) {
  const TemporaryFolder folder;
  td::distributed::run_threads(1, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    job.loader.emplace(job.digits, *job.sampler, td::data::DataLoaderOptions{.batch_size = 51, .drop_last = true});
    EXPECT_EQ(error_text<td::ValueError>([&] { Trainer trainer(ctx, {.out = folder / "out"}, job.components()); }),
              "Trainer: not enough data for one batch: 50 samples over 1 rank are 50 per rank, "
              "fewer than batch_size 51");
  });
}

}  // namespace
