// Trains a transformer or an LSTM to continue a text, character by character, on one process or on several, and samples
// from it. With --model both it trains one after the other and plots their losses in one chart.
//
//     ./bazelw run //examples/language_model -- --nproc 2 --max-steps 500 --sample 300
//     ./bazelw run //examples/language_model -- --nproc 2 --model lstm --data FILE --save-every 500 --sample 300
//     ./bazelw run //examples/language_model -- --nproc 2 --model both --data FILE --out results
#include <tandem/base/file.h>
#include <tandem/examples/language_model/documentation.h>
#include <tandem/examples/language_model/sample.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/language.h>
#include <tandem/models/gpt2.h>
#include <tandem/models/lstm.h>
#include <tandem/tandem.h>
#include <tandem/train/plot.h>
#include <tandem/train/trainer.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

namespace td = tandem;

namespace {

struct Settings {
  std::string model = "gpt";  // or "lstm", "both"
  // Without the vocabulary, which is computed from the text.
  td::models::Gpt2Config gpt = {.n_positions = 128, .n_embd = 128, .n_layer = 4, .n_head = 4};
  td::models::LstmOptions lstm = {.width = 256, .layers = 2};
  double dropout = 0;
  examples::SampleOptions sample;
};

struct Text {
  std::string characters;
  std::string source;  // for output
};

/// A network that maps characters [N, T] to logits [N, T, vocabulary] of the characters after them.
struct Model {
  std::string name;  // for output
  std::unique_ptr<td::nn::Layer> network;
};

Model make_model(const std::string& kind, const Settings& settings, int64_t vocabulary) {
  if (kind == "lstm") {
    td::models::LstmOptions options = settings.lstm;
    options.vocabulary = vocabulary;
    options.dropout = settings.dropout;
    return {td::str("LSTM of ", td::format_count(options.layers, "layer"), " of width ", options.width),
            std::make_unique<td::models::LstmLanguageModel>(options)};
  }
  td::models::Gpt2Config config = settings.gpt;
  config.vocab_size = vocabulary;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = settings.dropout;
  return {td::str("GPT of ", td::format_count(config.n_layer, "layer"), " of width ", config.n_embd),
          std::make_unique<td::models::Gpt2>(config)};
}

/// Trains a GPT or an LSTM ("gpt", "lstm") and returns the chart of its losses.
td::train::Plot train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const Settings& settings,
                      const std::string& kind, const Text& text) {
  td::manual_seed(flags.seed);
  // Training: overlapping windows of the first nine tenths. Validation: disjoint windows of the last tenth.
  const int64_t context = settings.gpt.n_positions;
  const td::text::CharTextDataset training(text.characters, td::text::TextSplit::kTrain, {.context = context});
  const td::text::CharTextDataset validation(text.characters, td::text::TextSplit::kValidation,
                                             {.context = context, .stride = context});
  const td::text::CharVocabulary& vocabulary = training.vocabulary();
  if (settings.sample.length > 0) vocabulary.encode(settings.sample.prompt);  // rejects a wrong prompt before training

  const auto [name, network] = make_model(kind, settings, vocabulary.size());
  td::nn::Layer& model = *network;
  model.to(ctx.device());
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  td::optim::AdamW adamw(
      examples::decay_matrices_only(model, {.lr = flags.lr, .betas = {0.9, 0.99}, .weight_decay = 0.1}));
  td::data::DistributedSampler sampler(training.size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      training, sampler, {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  // Linear warm-up over 5 % of the steps, then cosine decay to 10 % of the learning rate.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(adamw, {.warmup_steps = steps / 20, .total_steps = steps, .min_factor = 0.1});

  td::train::TrainerOptions options = flags.trainer;
  options.name = "language_model";
  options.title = td::str(name, ", on ", text.source);
  options.items = "characters";
  options.items_per_sample = context;
  options.max_norm = 1.0;
  options.evaluate_every = 100;
  options.identity.emplace_back("characters", td::str(text.characters.size()));
  td::train::Trainer trainer(
      ctx, options,
      {.model = model, .reducer = ddp.reducer(), .optimizer = adamw, .schedule = &schedule, .loader = loader});
  trainer.note(td::str(name, " on ", td::format_count(ctx.world_size(), "rank"), "; ", text.source, ", ",
                       text.characters.size(), " characters, ", vocabulary.size(),
                       " different ones, the last tenth for validation"));
  // The images of a batch are characters, its labels the characters that follow them.
  trainer.fit(
      [&](const td::data::Batch& batch) {
        return td::cross_entropy(ddp(batch.input).flatten(0, 1), batch.target.flatten());
      },
      [&] { return examples::evaluate_language_model(model, validation, ctx); });
  const td::HookHandle whole = ddp.gathered();
  if (settings.sample.length > 0 && ctx.rank() == 0) {
    std::cout << examples::sample(model, context, vocabulary, settings.sample, ctx.device()) << std::endl;
  }
  return trainer.loss_plot();
}

void train_both(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const Settings& settings,
                const Text& text) {
  td::train::Plot both = {"GPT and LSTM on " + text.source, "step", "loss", {}};
  for (const std::string kind : {"gpt", "lstm"}) {
    examples::TrainingFlags own = flags;
    own.trainer.out = flags.trainer.out + "/" + kind;
    if (kind == "lstm") own.trainer.trace.clear();  // --trace names one file
    for (td::train::Series& series : train(ctx, own, settings, kind, text).series) {
      series.label = (kind == "gpt" ? "GPT, " : "LSTM, ") + series.label;
      both.series.push_back(std::move(series));
    }
    if (ctx.should_stop()) return;
  }
  if (ctx.rank() == 0) td::write_file("language_model", flags.trainer.out + "/loss.svg", td::train::to_svg(both));
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 1;
  flags.trainer.max_steps = 500;
  flags.batch_size = 16;
  flags.lr = 3e-3;
  Settings settings;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description =
           "Trains a transformer or an LSTM to continue a text, character by character, on one process or on "
           "several.",
       .data_help = "a text file; default: tandem's documentation",
       .batch_help = "windows of --context characters per rank and batch",
       .flags = {{.name = "--model",
                  .help = "network; both: one after the other, and a chart of both",
                  .value = &settings.model,
                  .choices = {"gpt", "lstm", "both"},
                  .same_on_resume = true},
                 examples::fixed_number("--layers", "number of transformer blocks", &settings.gpt.n_layer, 1, 65536),
                 examples::fixed_number("--width", "embedding size of the transformer, a multiple of --heads",
                                        &settings.gpt.n_embd, 1, 65536),
                 examples::fixed_number("--heads", "attention heads", &settings.gpt.n_head, 1, 65536),
                 examples::fixed_number("--lstm-layers", "number of LSTM layers", &settings.lstm.layers, 1, 65536),
                 examples::fixed_number("--lstm-width", "size of the LSTM's embeddings and states",
                                        &settings.lstm.width, 1, 65536),
                 examples::fixed_number("--context", "characters per window", &settings.gpt.n_positions, 1, 65536),
                 examples::fixed_number("--dropout", "dropout probability", &settings.dropout, 0, 0.99),
                 {.name = "--sample",
                  .help = "characters to sample from the trained model; 0 = none",
                  .value = &settings.sample.length,
                  .max = 1e6},
                 {.name = "--prompt", .help = "text that the sample continues", .value = &settings.sample.prompt},
                 {.name = "--temperature",
                  .help = "sampling temperature: below 1 prefers likely characters, above 1 flattens the distribution",
                  .value = &settings.sample.temperature,
                  .min = 0.01,
                  .max = 100},
                 {.name = "--top-k",
                  .help = "sample from the k most likely characters; 0 = all",
                  .value = &settings.sample.top_k,
                  .max = 65536}}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) {
    const Text text = flags.data.empty() ? Text{std::string(examples::documentation()), "tandem's documentation"}
                                         : Text{td::text::read_text(flags.data),
                                                std::filesystem::path(flags.data).filename().string()};
    settings.model == "both" ? train_both(ctx, flags, settings, text)
                             : static_cast<void>(train(ctx, flags, settings, settings.model, text));
  });
}
