// Trains a character-level GPT on a text, on one process or on several, and samples from it.
//
//     ./bazelw run //examples/gpt_char -- --nproc 2 --max-steps 500 --sample 300
//     ./bazelw run //examples/gpt_char -- --nproc 2 --data FILE --max-steps 2000 --save-every 500 --sample 300
//     ./bazelw run //examples/gpt_char -- --data FILE --max-steps 2000 --save-every 500 --resume --sample 1000
#include <tandem/examples/gpt_char/documentation.h>
#include <tandem/examples/gpt_char/sample.h>
#include <tandem/examples/models/gpt.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/training_run.h>
#include <tandem/tandem.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

constexpr int64_t kValidateEvery = 100;

struct GptFlags {
  models::GptOptions model;  // without the vocabulary, which comes from the text
  examples::SampleOptions sample;
};

/// Mean loss per character over the validation text; the windows are distributed over the ranks. Collective.
examples::Validation evaluate(models::Gpt& model, const td::data::Dataset& text, td::distributed::Context& ctx,
                              const examples::TrainingFlags& flags) {
  const td::NoGradGuard no_grad;
  const examples::Amp amp(flags);
  model.eval();
  td::data::DistributedSampler sampler(
      text.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(text, sampler, {.batch_size = 32, .device = ctx.device()});
  const td::Tensor sum = td::zeros({}, {td::kFloat64, ctx.device()});
  for (auto& batch : loader) {
    const td::Tensor logits = model(batch.images).flatten(0, 1);
    sum.add_(td::cross_entropy(logits, batch.labels.flatten()) * static_cast<double>(batch.size));
  }
  ctx.group()->all_reduce(sum);
  model.train();
  return {sum.item() / static_cast<double>(text.size())};
}

/// Weight decay for matrices only, not for norms and biases.
std::vector<td::optim::ParameterGroup<td::optim::AdamWOptions>> parameter_groups(const models::Gpt& model, double lr) {
  std::vector<td::Tensor> matrices;
  std::vector<td::Tensor> others;
  for (const td::Tensor& parameter : model.parameters())
    (parameter.dim() >= 2 ? matrices : others).push_back(parameter);
  return {{matrices, {.lr = lr, .betas = {0.9, 0.99}, .weight_decay = 0.1}},
          {others, {.lr = lr, .betas = {0.9, 0.99}, .weight_decay = 0}}};
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const GptFlags& gpt_flags) {
  td::manual_seed(flags.seed);
  const std::string text =
      flags.data.empty() ? std::string(examples::documentation()) : td::data::read_text(flags.data);
  // Training: overlapping windows of the first nine tenths. Validation: disjoint windows of the last tenth.
  const int64_t context = gpt_flags.model.context;
  const td::data::CharTextDataset training(text, td::data::TextSplit::kTrain, {.context = context});
  const td::data::CharTextDataset validation(text, td::data::TextSplit::kValidation,
                                             {.context = context, .stride = context});
  const td::data::CharVocabulary& vocabulary = training.vocabulary();
  if (gpt_flags.sample.length > 0)
    vocabulary.encode(gpt_flags.sample.prompt);  // rejects a wrong prompt before training
  const std::string source =
      flags.data.empty() ? "tandem's documentation" : std::filesystem::path(flags.data).filename().string();

  models::GptOptions shape = gpt_flags.model;
  shape.vocabulary = vocabulary.size();
  models::Gpt model(shape);
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), examples::reducer_options(flags));
  td::optim::AdamW adamw(parameter_groups(model, flags.lr));
  td::data::DistributedSampler sampler(training.size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      training, sampler, {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  examples::check_batches("gpt_char", training, "pieces of text", loader, sampler, ctx, flags);
  // Linear warm-up over 5 % of the steps, then cosine decay to 10 % of the learning rate.
  const int64_t steps = examples::total_steps(flags, loader.size());
  td::optim::CosineWarmupLR schedule(adamw, {.warmup_steps = steps / 20, .total_steps = steps, .min_factor = 0.1});

  examples::TrainingRun run(
      ctx, flags,
      {.name = "gpt_char",
       .title = td::str("GPT, ", examples::count(shape.layers, "layer"), " of width ", shape.width, ", on ", source),
       .items = "characters",
       .items_per_batch = flags.batch_size * shape.context,
       .batches_per_epoch = loader.size(),
       .validate_every = kValidateEvery,
       .identity = {{"--layers", td::str(shape.layers)},
                    {"--width", td::str(shape.width)},
                    {"--heads", td::str(shape.heads)},
                    {"--context", td::str(shape.context)},
                    {"--dropout", td::str(shape.dropout)},
                    {"characters", td::str(text.size())},
                    {"steps of the schedule", td::str(steps)}}},
      {.model = model, .reducer = ddp.reducer(), .optimizer = adamw, .schedule = &schedule, .sampler = sampler});
  run.note(td::str("GPT of ", examples::count(shape.layers, "layer"), " of width ", shape.width, " on ",
                   examples::count(ctx.world_size(), "rank"), "; ", source, ", ", text.size(), " characters, ",
                   shape.vocabulary, " different ones, the last tenth for validation"));
  run.start();

  const std::vector<td::Tensor> parameters = model.parameters();
  examples::Batches batches(loader);
  while (run.has_next_step()) {
    adamw.zero_grad();
    for (int64_t micro_batch = 1; micro_batch <= flags.accumulate; ++micro_batch) {
      const td::data::Batch& batch = batches.next();  // images: characters; labels: the characters that follow them
      td::Tensor loss;
      {
        const examples::Amp amp(flags);
        loss = td::cross_entropy(ddp(batch.images).flatten(0, 1), batch.labels.flatten());
      }
      // Only the last micro-batch of a step reduces gradients.
      const td::HookHandle no_sync = micro_batch < flags.accumulate ? ddp.no_sync() : td::HookHandle();
      run.backward(loss);
    }
    run.unscale_gradients();
    td::optim::clip_grad_norm_(parameters, 1.0);
    run.optimizer_step();
    schedule.step();
    run.end_step([&] { return evaluate(model, validation, ctx, flags); });
  }
  run.finish();
  if (gpt_flags.sample.length > 0 && run.is_rank0()) {
    std::cout << examples::sample(model, vocabulary, gpt_flags.sample, ctx.device()) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.epochs = 1;
  flags.max_steps = 500;
  flags.batch_size = 16;
  flags.lr = 3e-3;
  GptFlags gpt_flags;
  const auto size = [](const char* name, const char* help, int64_t* value) {
    return examples::ExampleFlag{.name = name, .help = help, .value = value, .min = 1, .max = 65536};
  };
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a transformer to continue a text, character by character, on one process or on several.",
       .data_help = "a text file; default: tandem's documentation",
       .batch_help = "windows of --context characters per rank and batch",
       .flags = {size("--layers", "number of transformer blocks", &gpt_flags.model.layers),
                 size("--width", "embedding size, a multiple of --heads", &gpt_flags.model.width),
                 size("--heads", "attention heads", &gpt_flags.model.heads),
                 size("--context", "characters per window", &gpt_flags.model.context),
                 {.name = "--dropout", .help = "dropout probability", .value = &gpt_flags.model.dropout, .max = 0.99},
                 {.name = "--sample",
                  .help = "characters to sample from the trained model; 0 = none",
                  .value = &gpt_flags.sample.length,
                  .max = 1e6},
                 {.name = "--prompt", .help = "text that the sample continues", .value = &gpt_flags.sample.prompt},
                 {.name = "--temperature",
                  .help = "sampling temperature: below 1 prefers likely characters, above 1 flattens the distribution",
                  .value = &gpt_flags.sample.temperature,
                  .min = 0.01,
                  .max = 100},
                 {.name = "--top-k",
                  .help = "sample from the k most likely characters; 0 = all",
                  .value = &gpt_flags.sample.top_k,
                  .max = 65536}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, gpt_flags); });
}
