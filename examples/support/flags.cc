#include <tandem/examples/support/flags.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <vector>

namespace examples {

namespace {

std::string from_users_folder(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || folder == nullptr) return path;
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

}  // namespace

int parse_training_flags(int argc, char** argv, const std::string& description, const std::string& models,
                         TrainingFlags& flags) {
  CLI::App app(description);
  app.option_defaults()->always_capture_default();
  const std::vector<std::string> names = words(models);
  flags.model = names.front();
  app.add_option("--model", flags.model, "which network")->check(CLI::IsMember(names));
  app.add_option("--device", flags.device, "where each rank computes")->check(CLI::IsMember({"cpu"}));
  app.add_option("--epochs", flags.epochs, "passes over the training data")->check(CLI::NonNegativeNumber);
  app.add_option("--max-steps", flags.max_steps, "stop after that many steps; 0 = no limit")->check(CLI::NonNegativeNumber);
  app.add_option("--batch-size", flags.batch_size, "images per rank and step")->check(CLI::PositiveNumber);
  app.add_option("--lr", flags.lr, "learning rate")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", flags.seed, "of initial weights, order of the data, and drawn data");
  app.add_option("--data", flags.data, "folder with the data set's own files; none: data drawn by the program");
  app.add_option("--out", flags.out, "folder for model.safetensors, made if it does not exist");
  app.add_option("--trace", flags.trace, "write a trace of the first steps, all ranks in one file, for ui.perfetto.dev");
  // Taken out by distributed::launch; declared here for --help and so that they are not refused.
  int nproc = 1;
  std::string log_dir;
  bool tee = false;
  double timeout = 300;
  auto* ranks = app.add_option_group("Ranks");
  ranks->add_option("--nproc", nproc, "ranks to start, one process each");
  ranks->add_option("--log-dir", log_dir, "folder for each rank's output, rank-R.log");
  ranks->add_flag("--tee", tee, "with --log-dir: show the output too");
  ranks->add_option("--timeout", timeout, "seconds that a collective may take");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  }
  flags.data = from_users_folder(flags.data);
  flags.out = from_users_folder(flags.out);
  flags.trace = from_users_folder(flags.trace);
  return -1;
}

}  // namespace examples
