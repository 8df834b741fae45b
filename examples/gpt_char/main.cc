// Learns to write a text character by character; trains on one process or on several.
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

struct OwnFlags {
  models::GptOptions model;  // without the vocabulary, which the text determines
  examples::SampleOptions sample;
};

/// Mean loss per character over the validation text, each window looked at by one rank.
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

/// Weight decay is for matrices: norms and biases are left as the loss wants them.
std::vector<td::optim::ParameterGroup<td::optim::AdamWOptions>> parameter_groups(const models::Gpt& model, double lr) {
  std::vector<td::Tensor> matrices;
  std::vector<td::Tensor> others;
  for (const td::Tensor& parameter : model.parameters())
    (parameter.dim() >= 2 ? matrices : others).push_back(parameter);
  return {{matrices, {.lr = lr, .betas = {0.9, 0.99}, .weight_decay = 0.1}},
          {others, {.lr = lr, .betas = {0.9, 0.99}, .weight_decay = 0}}};
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const OwnFlags& own) {
  td::manual_seed(flags.seed);
  const std::string text =
      flags.data.empty() ? std::string(examples::documentation()) : td::data::read_text(flags.data);
  // Windows at every place of the first nine tenths; each character of the last tenth once.
  const int64_t context = own.model.context;
  const td::data::CharTextDataset training(text, td::data::TextSplit::kTrain, {.context = context});
  const td::data::CharTextDataset validation(text, td::data::TextSplit::kValidation,
                                             {.context = context, .stride = context});
  const td::data::CharVocabulary& vocabulary = training.vocabulary();
  if (own.sample.length > 0) vocabulary.encode(own.sample.prompt);  // a wrong prompt is noticed before the training
  const std::string source =
      flags.data.empty() ? "tandem's documentation" : std::filesystem::path(flags.data).filename().string();

  models::GptOptions shape = own.model;
  shape.vocabulary = vocabulary.size();
  models::Gpt model(shape);
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), examples::reducer_options(flags));
  td::optim::AdamW adamw(parameter_groups(model, flags.lr));
  td::data::DistributedSampler sampler(training.size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      training, sampler, {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  examples::check_batches("gpt_char", training, "pieces of text", loader, sampler, ctx, flags);
  // The rate rises through the first twentieth of the training, then falls along half a cosine to a tenth.
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
  while (run.goes_on()) {
    adamw.zero_grad();
    for (int64_t part = 1; part <= flags.accumulate; ++part) {
      const td::data::Batch& batch = batches.next();  // images: characters; labels: those that follow them
      td::Tensor loss;
      {
        const examples::Amp amp(flags);
        loss = td::cross_entropy(ddp(batch.images).flatten(0, 1), batch.labels.flatten());
      }
      // Gradients travel in the last part of a step only.
      const td::HookHandle alone = part < flags.accumulate ? ddp.no_sync() : td::HookHandle();
      run.backward(loss);
    }
    run.unscale_gradients();
    td::optim::clip_grad_norm_(parameters, 1.0);
    run.optimizer_step();
    schedule.step();
    run.end_step([&] { return evaluate(model, validation, ctx, flags); });
  }
  run.finish();
  if (own.sample.length > 0 && run.is_rank0()) {
    std::cout << examples::sample(model, vocabulary, own.sample, ctx.device()) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.epochs = 1;
  flags.max_steps = 500;
  flags.batch_size = 16;
  flags.lr = 3e-3;
  OwnFlags own;
  const auto size = [](const char* name, const char* help, int64_t* value) {
    return examples::OwnFlag{.name = name, .help = help, .value = value, .least = 1, .most = 65536};
  };
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a transformer to continue a text, character by character, on one process or on several.",
       .data_help = "a text file; none: tandem's own documentation",
       .batch_help = "pieces of text of --context characters per rank and batch",
       .flags = {size("--layers", "blocks of attention and MLP", &own.model.layers),
                 size("--width", "numbers per character, a multiple of --heads", &own.model.width),
                 size("--heads", "of attention", &own.model.heads),
                 size("--context", "characters that are looked at", &own.model.context),
                 {.name = "--dropout",
                  .help = "share of the values that are left out in training",
                  .value = &own.model.dropout,
                  .most = 0.99},
                 {.name = "--sample",
                  .help = "characters to print from the trained model; 0 = none",
                  .value = &own.sample.length,
                  .most = 1e6},
                 {.name = "--prompt", .help = "what the sample goes on from", .value = &own.sample.prompt},
                 {.name = "--temperature",
                  .help = "of the sample: below 1 likely characters are preferred, above 1 unlikely ones",
                  .value = &own.sample.temperature,
                  .least = 0.01,
                  .most = 100},
                 {.name = "--top-k",
                  .help = "draw from that many likeliest characters; 0 = all",
                  .value = &own.sample.top_k,
                  .most = 65536}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, own); });
}
