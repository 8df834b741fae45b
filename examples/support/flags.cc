#include <tandem/examples/support/flags.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <sstream>
#include <variant>
#include <vector>

namespace examples {

namespace {

/// A path that was given is not empty: an unset variable in a script must not silently mean something else.
std::string not_empty(const std::string& path) { return path.empty() ? "the path is empty" : ""; }

/// Refuses what CLI11 would take: a minus sign for unsigned numbers, nan.
template <typename T>
std::function<std::string(const std::string&)> number(const char* kind, T least,
                                                      T most = std::numeric_limits<T>::max()) {
  return [=](const std::string& text) -> std::string {
    T value = {};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    std::ostringstream message;
    message << "expected " << kind << " from " << least << " to " << most << ", got '" << text << "'";
    return message.str();
  };
}

/// Refuses numbers outside of a flag's range, as the flag's own type reads them.
struct AddOption {
  CLI::App& app;
  const OwnFlag& flag;

  void operator()(int64_t* value) const {
    app.add_option(flag.name, *value, flag.help)
        ->check(number<int64_t>("a whole number", static_cast<int64_t>(flag.least), static_cast<int64_t>(flag.most)));
  }
  void operator()(double* value) const {
    app.add_option(flag.name, *value, flag.help)->check(number<double>("a number", flag.least, flag.most));
  }
  void operator()(std::string* value) const {
    CLI::Option* option = app.add_option(flag.name, *value, flag.help);
    flag.choices.empty() ? option->check(not_empty) : option->check(CLI::IsMember(flag.choices));
  }
};

/// A command line with the flags in which an example differs from others.
struct CommandLine {
  CLI::App app;

  CommandLine(const char* program, const std::string& description, const std::vector<OwnFlag>& flags)
      : app(description, std::filesystem::path(program).filename().string()) {
    app.option_defaults()->always_capture_default();
    for (const OwnFlag& flag : flags) std::visit(AddOption{app, flag}, flag.value);
  }

  /// -1 to go on, in the user's folder; else the exit status.
  int parse(int argc, char** argv, const std::string& usage) {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);
      std::cerr << app.get_name() << ": " << error.what() << "\nusage: " << app.get_name() << " " << usage
                << ", --help names all flags\n";
      return 2;
    }
    return enter_users_folder() ? -1 : 2;
  }
};

}  // namespace

bool enter_users_folder() {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr) return true;
  std::error_code error;
  std::filesystem::current_path(folder, error);
  if (error) std::cerr << "BUILD_WORKING_DIRECTORY: cannot enter '" << folder << "': " << error.message() << "\n";
  return !error;
}

int parse_training_flags(int argc, char** argv, const Program& program, TrainingFlags& flags) {
  constexpr int64_t kMaxCount = 1'000'000'000;  // so that products of counts do not overflow
  const auto count = [](int64_t least) { return number<int64_t>("a whole number", least, kMaxCount); };
  CommandLine line(argv[0], program.description, program.flags);
  CLI::App& app = line.app;
  app.add_option("--epochs", flags.epochs, "passes over the training data")->check(count(1));
  app.add_option("--max-steps", flags.max_steps, "stop after that many steps; 0 = no limit")->check(count(0));
  app.add_option("--batch-size", flags.batch_size, program.batch_help)->check(count(1));
  app.add_option("--accumulate", flags.accumulate, "batches whose gradients add up to one step")->check(count(1));
  app.add_option("--lr", flags.lr, "learning rate")->check(number<double>("a number", 0, 1e9));
  app.add_option("--amp", flags.amp,
                 "what products and convolutions are computed in instead of float32; float16 scales the loss")
      ->check(CLI::IsMember({"none", "bfloat16", "float16"}));
  app.add_option("--compress", flags.compress,
                 "how gradients travel: none, or fp16, bf16, power_sgd; several by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "fp16", "bf16", "power_sgd"}));
  app.add_option("--hook-report-every", flags.hook_report_every,
                 "with --compress: number of steps between reports of its error; 0 = never")
      ->check(count(0));
  app.add_option("--seed", flags.seed, "of initial weights, order of the data, and drawn data")
      ->check(number<uint64_t>("a whole number", 0));
  app.add_option("--data", flags.data, program.data_help)->check(not_empty);
  app.add_option("--out", flags.out,
                 "folder for weights, charts, event files and checkpoints, made if it does not exist")
      ->check(not_empty);
  app.add_flag("--resume", flags.resume, "go on from the newest checkpoint in --out, if there is one");
  app.add_option("--save-every", flags.save_every, "steps from one checkpoint to the next; 0 = only when interrupted")
      ->check(count(0));
  app.add_option("--log-every", flags.log_every, "steps from line to line without a terminal; 0 = every few seconds")
      ->check(count(0));
  app.add_option("--trace", flags.trace, "write a trace of the first steps, all ranks in one file, for ui.perfetto.dev")
      ->check(not_empty);
  // Taken out by distributed::launch; declared here for --help and so that they are not refused.
  int nproc = 1;
  std::string device = "cpu";
  std::string devices;
  std::string log_dir;
  bool tee = false;
  int max_restarts = 0;
  double timeout = 300;
  auto* ranks = app.add_option_group("Ranks");
  ranks->add_option("--nproc", nproc, "ranks to start, one process each");
  ranks->add_option("--device", device, "where each rank computes; auto: on a GPU if there is one for each")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  ranks->add_option("--devices", devices, "ranks that are threads of one process, on these devices: cpu,cpu:1");
  ranks->add_option("--log-dir", log_dir, "folder for each rank's output, rank-R.log");
  ranks->add_flag("--tee", tee, "with --log-dir: show the output too");
  ranks->add_option("--max-restarts", max_restarts,
                    "start all ranks again after a failure, so often; goes with --resume");
  ranks->add_option("--timeout", timeout, "seconds that a collective may take; 0 = no limit");
  return line.parse(argc, argv, "[--nproc N] [FLAG VALUE]...");
}

int parse_flags(int argc, char** argv, const std::string& description, const std::vector<OwnFlag>& flags) {
  return CommandLine(argv[0], description, flags).parse(argc, argv, "[FLAG VALUE]...");
}

}  // namespace examples
