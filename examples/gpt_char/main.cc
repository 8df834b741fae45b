// Trains a character-level GPT on a text, on one process or on several, and samples from it.
//
//     ./bazelw run //examples/gpt_char -- --nproc 2 --max-steps 500 --sample 300
//     ./bazelw run //examples/gpt_char -- --nproc 2 --data FILE --max-steps 2000 --save-every 500 --sample 300
//     ./bazelw run //examples/gpt_char -- --data FILE --max-steps 2000 --save-every 500 --resume --sample 1000
#include <tandem/examples/gpt_char/documentation.h>
#include <tandem/examples/gpt_char/sample.h>
#include <tandem/examples/models/gpt.h>
#include <tandem/examples/support/flags.h>
#include <tandem/tandem.h>
#include <tandem/train/metrics.h>
#include <tandem/train/trainer.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

struct GptFlags {
  models::GptOptions model;  // without the vocabulary, which is computed from the text
  examples::SampleOptions sample;
};

/// Mean loss per character and perplexity of the validation text; its windows are distributed over the ranks.
/// Collective.
td::train::Evaluation evaluate(models::Gpt& model, const td::data::Dataset& text, td::distributed::Context& ctx) {
  td::data::DistributedSampler sampler(
      text.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(text, sampler, {.batch_size = 32, .device = ctx.device()});
  td::train::Perplexity perplexity({.group = ctx.group()});
  for (auto& batch : loader) perplexity.update(model(batch.images), batch.labels);
  const double result = perplexity.compute();
  return {{"loss", std::log(result)}, {"perplexity", result}};
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
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  td::optim::AdamW adamw(parameter_groups(model, flags.lr));
  td::data::DistributedSampler sampler(training.size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      training, sampler, {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  // Linear warm-up over 5 % of the steps, then cosine decay to 10 % of the learning rate.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(adamw, {.warmup_steps = steps / 20, .total_steps = steps, .min_factor = 0.1});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "gpt_char";
  options.title = td::str("GPT, ", td::format_count(shape.layers, "layer"), " of width ", shape.width, ", on ", source);
  options.items = "characters";
  options.items_per_sample = shape.context;
  options.max_norm = 1.0;
  options.evaluate_every = 100;
  options.identity.emplace_back("characters", td::str(text.size()));
  options.identity.emplace_back("steps of the schedule", td::str(steps));
  td::train::Trainer trainer(
      ctx, options,
      {.model = model, .reducer = ddp.reducer(), .optimizer = adamw, .schedule = &schedule, .loader = loader});
  trainer.note(td::str("GPT of ", td::format_count(shape.layers, "layer"), " of width ", shape.width, " on ",
                       td::format_count(ctx.world_size(), "rank"), "; ", source, ", ", text.size(), " characters, ",
                       shape.vocabulary, " different ones, the last tenth for validation"));
  // The images of a batch are characters, its labels the characters that follow them.
  trainer.fit(
      [&](const td::data::Batch& batch) {
        return td::cross_entropy(ddp(batch.images).flatten(0, 1), batch.labels.flatten());
      },
      [&] { return evaluate(model, validation, ctx); });
  if (gpt_flags.sample.length > 0 && ctx.rank() == 0) {
    std::cout << examples::sample(model, vocabulary, gpt_flags.sample, ctx.device()) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 1;
  flags.trainer.max_steps = 500;
  flags.batch_size = 16;
  flags.lr = 3e-3;
  GptFlags gpt_flags;
  const auto size = [](const char* name, const char* help, int64_t* value) {
    return examples::ExampleFlag{
        .name = name, .help = help, .value = value, .min = 1, .max = 65536, .same_on_resume = true};
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
                 {.name = "--dropout",
                  .help = "dropout probability",
                  .value = &gpt_flags.model.dropout,
                  .max = 0.99,
                  .same_on_resume = true},
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
