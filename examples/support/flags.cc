#include <tandem/examples/support/flags.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

namespace examples {

namespace td = tandem;

namespace {

/// Rejects an empty path: an unset variable in a script must not silently select the default.
std::string not_empty(const std::string& path) { return path.empty() ? "the path is empty" : ""; }

/// Checks a number more strictly than CLI11, which accepts a minus sign for unsigned numbers, and nan.
template <typename T>
std::function<std::string(const std::string&)> number(const char* kind, T min, T max = std::numeric_limits<T>::max()) {
  return [=](const std::string& text) -> std::string {
    T value = {};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= min && value <= max) return "";
    std::ostringstream message;
    message << "expected " << kind << " from " << min << " to " << max << ", got '" << text << "'";
    return message.str();
  };
}

/// Adds a flag to the command line, with a check of its range.
struct AddOption {
  CLI::App& app;
  const ExampleFlag& flag;

  void operator()(int64_t* value) const {
    app.add_option(flag.name, *value, flag.help)
        ->check(number<int64_t>("a whole number", static_cast<int64_t>(flag.min), static_cast<int64_t>(flag.max)));
  }
  void operator()(double* value) const {
    app.add_option(flag.name, *value, flag.help)->check(number<double>("a number", flag.min, flag.max));
  }
  void operator()(std::string* value) const {
    CLI::Option* option = app.add_option(flag.name, *value, flag.help);
    flag.choices.empty() ? option->check(not_empty) : option->check(CLI::IsMember(flag.choices));
  }
};

/// The command line of an example.
struct CommandLine {
  CLI::App app;

  CommandLine(const char* program, const std::string& description, const std::vector<ExampleFlag>& flags)
      : app(description, std::filesystem::path(program).filename().string()) {
    app.option_defaults()->always_capture_default();
    for (const ExampleFlag& flag : flags) std::visit(AddOption{app, flag}, flag.value);
  }

  /// Returns the exit status, or -1 to continue, after changing to the user's folder.
  int parse(int argc, char** argv, const std::string& usage) {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);
      std::cerr << app.get_name() << ": " << error.what() << "\nusage: " << app.get_name() << " " << usage
                << "; --help lists all flags\n";
      return 2;
    }
    return change_to_user_folder() ? -1 : 2;
  }
};

}  // namespace

ExampleFlag fixed_number(std::string name, std::string help, std::variant<int64_t*, double*, std::string*> value,
                         double min, double max) {
  return {
      .name = std::move(name), .help = std::move(help), .value = value, .min = min, .max = max, .same_on_resume = true};
}

bool change_to_user_folder() {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr) return true;
  std::error_code error;
  std::filesystem::current_path(folder, error);
  if (error) std::cerr << "BUILD_WORKING_DIRECTORY: cannot enter '" << folder << "': " << error.message() << "\n";
  return !error;
}

td::distributed::ReducerOptions TrainingFlags::reducer_options() const {
  td::distributed::ReducerOptions options;
  for (const std::string& name : compress) {
    if (name == "fp16") options.hooks.push_back(td::distributed::fp16_compress());
    if (name == "bf16") options.hooks.push_back(td::distributed::bf16_compress());
    if (name == "power_sgd") options.hooks.push_back(td::distributed::power_sgd({.seed = seed}));
  }
  options.hook_report_every = hook_report_every;
  using td::distributed::Shard;
  for (const Shard level : {Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
    if (shard == to_string(level)) options.shard = level;
  }
  return options;
}

void add_launch_flags(CLI::App& app) {
  for (const auto& flag : td::distributed::launch_flags()) {
    if (flag.value.empty()) {
      app.add_flag(flag.names, flag.help);
    } else {
      app.add_option(flag.names, flag.help)->type_name(flag.value)->expected(1);
    }
  }
}

int parse_training_flags(int argc, char** argv, const ProgramInfo& program, TrainingFlags& flags) {
  constexpr int64_t kMaxCount = 1'000'000'000;  // products of two counts must not overflow
  const auto count = [](int64_t min) { return number<int64_t>("a whole number", min, kMaxCount); };
  CommandLine line(argv[0], program.description, program.flags);
  CLI::App& app = line.app;
  app.add_option("--epochs", flags.trainer.epochs, "passes over the training data")->check(count(1));
  app.add_option("--max-steps", flags.trainer.max_steps, "stop after that many steps; 0 = no limit")->check(count(0));
  app.add_option("--batch-size", flags.batch_size, program.batch_help)->check(count(1));
  app.add_option("--accumulate", flags.trainer.accumulate, "micro-batches per optimizer step")->check(count(1));
  app.add_option("--lr", flags.lr, "learning rate")->check(number<double>("a number", 0, 1e9));
  std::string amp = "none";
  app.add_option("--amp", amp, "autocast dtype of matrix products and convolutions; float16 also scales the loss")
      ->check(CLI::IsMember({"none", "bfloat16", "float16"}));
  app.add_option("--compress", flags.compress,
                 "communication hooks, separated by commas: fp16, bf16, power_sgd; none: float32 all-reduce")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "fp16", "bf16", "power_sgd"}));
  app.add_option("--hook-report-every", flags.hook_report_every,
                 "with --compress: steps between reports of the compression error; 0 = never")
      ->check(count(0));
  app.add_option("--shard", flags.shard, "what the ranks divide among themselves to save memory")
      ->check(CLI::IsMember({"none", "optimizer", "gradients", "parameters"}));
  app.add_option("--seed", flags.seed, "seed of initial weights, data order and generated data")
      ->check(number<uint64_t>("a whole number", 0));
  if (!program.data_help.empty()) app.add_option("--data", flags.data, program.data_help)->check(not_empty);
  app.add_option("--out", flags.trainer.out,
                 "folder for weights, charts, event files and checkpoints; created if it does not exist")
      ->check(not_empty);
  app.add_flag("--resume", flags.trainer.resume, "continue from the newest checkpoint in --out, if there is one");
  app.add_option("--save-every", flags.trainer.save_every, "steps between checkpoints; 0 = only when interrupted")
      ->check(count(0));
  app.add_flag("--async-save", flags.trainer.async_save, "write the files of checkpoints while training goes on");
  app.add_option("--log-every", flags.trainer.log_every,
                 "without a terminal: steps between progress lines; 0 = every few seconds")
      ->check(count(0));
  app.add_option("--trace", flags.trainer.trace,
                 "write a trace of the first steps of all ranks to this file, for ui.perfetto.dev")
      ->check(not_empty);
  add_launch_flags(*app.add_option_group("Ranks"));
  const int status = line.parse(argc, argv, "[--nproc N] [FLAG VALUE]...");
  if (amp != "none") flags.trainer.amp = amp == "float16" ? td::kFloat16 : td::kBFloat16;
  const auto keep = [&](const std::string& name, const std::string& value) {
    flags.trainer.identity.emplace_back(name, value);
  };
  for (const ExampleFlag& flag : program.flags) {
    if (flag.same_on_resume) keep(flag.name, std::visit([](const auto* value) { return td::str(*value); }, flag.value));
  }
  keep("--lr", td::str(flags.lr));
  std::string compress;
  for (const std::string& name : flags.compress) compress += (compress.empty() ? "" : ",") + name;
  keep("--compress", compress);
  keep("--seed", td::str(flags.seed));
  return status;
}

int parse_flags(int argc, char** argv, const std::string& description, const std::vector<ExampleFlag>& flags) {
  return CommandLine(argv[0], description, flags).parse(argc, argv, "[FLAG VALUE]...");
}

}  // namespace examples
