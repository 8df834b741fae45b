// Fine-tunes a GPT-2 from a folder of transformers on a text, on one process or on several, and continues a prompt.
//
//     ./bazelw run //examples/finetune_gpt2 -- --model FOLDER --prompt "To be, or" --max-new-tokens 50
//     ./bazelw run //examples/finetune_gpt2 -- --model FOLDER --nproc 2 --data FILE --out results/gpt2 --save-every 100
//     ./bazelw run //examples/finetune_gpt2 -- --model results/gpt2/transformers --prompt "To be, or"
#include <tandem/base/file.h>
#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/language.h>
#include <tandem/models/gpt2.h>
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace td = tandem;

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kVocabFile = "vocab.json";
constexpr const char* kMergesFile = "merges.txt";
constexpr const char* kResult = "transformers";  // folder in --out

struct FinetuneFlags {
  std::string model;  // folder of transformers: the files above, and model.safetensors or its parts with an index
  int64_t context = 128;
  std::string prompt;
  int64_t max_new_tokens = 50;
  double temperature = 0;
  int64_t top_k = 50;
};

/// The network and the tokenizer of a folder.
struct Pretrained {
  explicit Pretrained(const std::string& folder)
      : model(td::models::Gpt2::from_pretrained(folder)),
        tokenizer(folder + '/' + kVocabFile, folder + '/' + kMergesFile) {
    const int64_t vocab_size = std::min<int64_t>(model->config().vocab_size, 65536);  // a TokenDataset has uint16
    TANDEM_CHECK(ValueError, tokenizer.size() <= vocab_size, "finetune_gpt2: '", folder, "/", kVocabFile, "' has ",
                 tokenizer.size(), " tokens, expected at most ", vocab_size);
  }

  std::unique_ptr<td::models::Gpt2> model;
  td::text::BpeTokenizer tokenizer;
};

/// Writes a folder that transformers and this program load.
void save_pretrained(const std::string& folder, const td::models::Gpt2& model, const std::string& source) {
  std::error_code ignored;  // then write_file fails
  std::filesystem::create_directories(folder, ignored);
  for (const char* name : {kConfigFile, kVocabFile, kMergesFile})
    td::write_file("finetune_gpt2", folder + '/' + name, td::text::read_text(source + '/' + name));
  td::io::save_pretrained(folder, model.transformers_state_dict().tensors());
}

/// The tokens of the prompt. Throws ValueError if the model has too few positions for its continuation.
std::vector<int64_t> encode_prompt(const Pretrained& gpt2, const FinetuneFlags& flags) {
  std::vector<int64_t> tokens = gpt2.tokenizer.encode(flags.prompt);
  const int64_t positions = gpt2.model->config().n_positions;
  TANDEM_CHECK(ValueError, static_cast<int64_t>(tokens.size()) + flags.max_new_tokens - 1 <= positions,
               "finetune_gpt2: the prompt has ", tokens.size(), " tokens and --max-new-tokens is ",
               flags.max_new_tokens, ", but the model has ", positions, " positions; shorten one of them");
  return tokens;
}

/// The prompt and its continuation: greedy, or sampled with a temperature.
std::string continue_prompt(Pretrained& gpt2, const FinetuneFlags& flags, uint64_t seed, td::Device device) {
  const std::vector<int64_t> prompt = encode_prompt(gpt2, flags);
  td::Generator generator(seed);
  td::models::GenerateOptions options = {.max_new_tokens = flags.max_new_tokens,
                                         .top_k = flags.top_k,
                                         .eos_token_id = gpt2.tokenizer.token_to_id("<|endoftext|>"),
                                         .generator = &generator};
  if (flags.temperature > 0) {
    options.do_sample = true;
    options.temperature = flags.temperature;
  }
  const td::Tensor input_ids = td::from_vector(prompt, {1, static_cast<int64_t>(prompt.size())}).to(device);
  return gpt2.tokenizer.decode(gpt2.model->generate(input_ids, options).to_vector<int64_t>());
}

void finetune(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const FinetuneFlags& own_flags,
              Pretrained& gpt2) {
  td::models::Gpt2& model = *gpt2.model;
  // Training: disjoint windows of the first nine tenths of the tokens. Validation: windows of the other tokens.
  const std::vector<int64_t> tokens = gpt2.tokenizer.encode(td::text::read_text(flags.data));
  const auto split = tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() / 10 * 9);
  const td::text::TokenOptions windows = {.context = own_flags.context, .stride = own_flags.context};
  const td::text::TokenDataset training(std::vector<uint16_t>(tokens.begin(), split), windows);
  const td::text::TokenDataset validation(std::vector<uint16_t>(split, tokens.end()), windows);

  td::HookHandle whole;  // destroyed after `ddp`, so that the parameters remain whole
  td::DistributedDataParallel ddp(model, ctx.group(), flags.reducer_options());
  td::optim::AdamW adamw(examples::decay_matrices_only(model, {.lr = flags.lr, .weight_decay = 0.1}));
  td::data::DistributedSampler sampler(training.size(), ctx.rank(), ctx.world_size(), {.seed = flags.seed});
  td::data::DataLoader loader(
      training, sampler, {.batch_size = flags.batch_size, .num_workers = 1, .drop_last = true, .device = ctx.device()});
  // Linear warm-up over 5 % of the steps, then cosine decay to 10 % of the learning rate.
  const int64_t steps = flags.trainer.total_steps(loader.size());
  td::optim::CosineWarmupLR schedule(adamw, {.warmup_steps = steps / 20, .total_steps = steps, .min_factor = 0.1});

  const td::models::Gpt2Config& config = model.config();
  const std::string source = std::filesystem::path(flags.data).filename().string();
  const std::string layers = td::str(td::format_count(config.n_layer, "layer"), " of width ", config.n_embd);
  td::train::TrainerOptions options = flags.trainer;
  options.name = "finetune_gpt2";
  options.title = td::str("GPT-2, ", layers, ", on ", source);
  options.items = "tokens";
  options.items_per_sample = own_flags.context;
  options.max_norm = 1.0;
  options.folders = {kResult};
  options.identity.emplace_back("tokens", td::str(tokens.size()));
  td::train::Trainer trainer(
      ctx, options,
      {.model = model, .reducer = ddp.reducer(), .optimizer = adamw, .schedule = &schedule, .loader = loader});
  trainer.note(td::str("GPT-2 of ", layers, " on ", td::format_count(ctx.world_size(), "rank"), "; ", source, ", ",
                       tokens.size(), " tokens, the last tenth for validation"));
  // The images of a batch are tokens, its labels the tokens that follow them.
  trainer.fit(
      [&](const td::data::Batch& batch) {
        return td::cross_entropy(ddp(batch.input).flatten(0, 1), batch.target.flatten());
      },
      [&] { return examples::evaluate_language_model(model, validation, ctx, flags.batch_size); });
  const std::string result = options.out + '/' + kResult;
  whole = ddp.gathered();
  if (ctx.rank() == 0) save_pretrained(result, model, own_flags.model);
  trainer.note("saved " + result);
}

void run(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const FinetuneFlags& own_flags) {
  td::manual_seed(flags.seed);
  Pretrained gpt2(own_flags.model);
  gpt2.model->to(ctx.device());
  if (!own_flags.prompt.empty()) encode_prompt(gpt2, own_flags);  // rejects a wrong prompt before training
  if (!flags.data.empty()) finetune(ctx, flags, own_flags, gpt2);
  if (!own_flags.prompt.empty() && ctx.rank() == 0)
    std::cout << continue_prompt(gpt2, own_flags, flags.seed, ctx.device()) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 3;
  flags.batch_size = 8;
  flags.lr = 5e-5;
  FinetuneFlags own_flags;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Fine-tunes a GPT-2 from a folder of transformers on a text, on one process or on several, and "
                      "continues a prompt.",
       .data_help = "a text file; default: no training, only --prompt",
       .batch_help = "windows of --context tokens per rank and batch",
       .flags = {{.name = "--model",
                  .help = "folder with config.json, model.safetensors (or its parts with an index), vocab.json and "
                          "merges.txt; required",
                  .value = &own_flags.model},
                 examples::fixed_number("--context", "tokens per window", &own_flags.context, 1, 65536),
                 {.name = "--prompt", .help = "text to continue, after the training", .value = &own_flags.prompt},
                 {.name = "--max-new-tokens",
                  .help = "most tokens by which the prompt is continued",
                  .value = &own_flags.max_new_tokens,
                  .min = 1},
                 {.name = "--temperature",
                  .help = "below 1 prefers likely tokens, above 1 flattens the distribution; 0: the most likely token",
                  .value = &own_flags.temperature,
                  .max = 100},
                 {.name = "--top-k",
                  .help = "with --temperature: draw from the k most likely tokens; 0 = all",
                  .value = &own_flags.top_k,
                  .max = 65536}}},
      flags);
  if (status >= 0) return status;
  if (own_flags.model.empty()) {
    std::cerr << "finetune_gpt2: --model is missing; expected a folder of transformers\n";
    return 2;
  }
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { run(ctx, flags, own_flags); });
}
