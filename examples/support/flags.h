// Command lines of the examples.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

namespace CLI {
class App;
}

namespace examples {

/// Flags of the training examples.
struct TrainingFlags {
  tandem::train::TrainerOptions trainer = {.epochs = 5};
  int64_t batch_size = 64;
  double lr = 0.05;
  std::vector<std::string> compress = {"none"};  ///< chain of communication hooks
  int64_t hook_report_every = 0;                 ///< steps; 0 = never
  std::string shard = "none";                    ///< what the ranks divide
  uint64_t seed = 1;
  std::string data;  ///< path; "" = generated data

  /// Options of DistributedDataParallel according to --compress, --hook-report-every and
  /// --shard.
  tandem::distributed::ReducerOptions reducer_options() const;
};

/// A flag of a single example. `value` points to the variable, whose current value is the default.
struct ExampleFlag {
  std::string name;  ///< "--width"
  std::string help;
  std::variant<int64_t*, double*, std::string*> value;
  double min = 0;  ///< smallest allowed number
  double max = 1e9;
  std::vector<std::string> choices = {};  ///< allowed texts; empty: the text is a path
  bool same_on_resume = false;            ///< whether a resumed training must have the same value
};

/// A number that a resumed training must not change.
ExampleFlag fixed_number(std::string name, std::string help, std::variant<int64_t*, double*, std::string*> value,
                         double min, double max);

/// Texts of an example for --help.
struct ProgramInfo {
  std::string description;
  std::string data_help = {};  ///< help text of --data; "": the program has no --data
  std::string batch_help;      ///< help text of --batch-size
  std::vector<ExampleFlag> flags = {};
};

/// Parses the command line into `flags`, whose current values are the defaults, and adds the flags that a resumed
/// training must not change to flags.trainer.identity. Returns -1 to continue, otherwise the
/// exit status: 0 after --help, 2 after an error on stderr. Accepts the flags of distributed::launch() (--nproc ...),
/// which parses them itself. Calls change_to_user_folder(), so that relative paths start at the user's folder under
/// `bazelw run` too.
int parse_training_flags(int argc, char** argv, const ProgramInfo& program, TrainingFlags& flags);

/// Declares the flags of distributed::launch(), which parses them itself, for --help and to be accepted.
void add_launch_flags(CLI::App& app);

/// Parses the command line of a program with only these flags, which starts no ranks.
int parse_flags(int argc, char** argv, const std::string& description, const std::vector<ExampleFlag>& flags);

/// Changes to the folder in which the user typed the command: `bazel run` starts programs elsewhere and passes that
/// folder in BUILD_WORKING_DIRECTORY. Returns false, after an error on stderr, if the folder cannot be entered.
bool change_to_user_folder();

}  // namespace examples
