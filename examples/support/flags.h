// What the examples' command lines share.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace examples {

struct TrainingFlags {
  int64_t epochs = 5;
  int64_t max_steps = 0;  ///< 0 = no limit
  int64_t batch_size = 64;
  int64_t accumulate = 1;  ///< batches per step
  double lr = 0.05;
  std::string amp = "none";                      ///< or what products are computed in: "bfloat16", "float16"
  std::vector<std::string> compress = {"none"};  ///< chain of communication hooks
  int64_t hook_report_every = 0;                 ///< steps; 0 = never
  uint64_t seed = 1;
  std::string data;  ///< "" = what the program has without
  std::string out = "results";
  bool resume = false;
  int64_t save_every = 0;  ///< steps; 0 = no checkpoints but at an interrupt
  int64_t log_every = 0;   ///< steps; 0 = a line every few seconds
  std::string trace;       ///< "" = none
};

/// A flag of one example alone.  `value` points to what it sets, whose present value is the default.
struct OwnFlag {
  std::string name;  ///< "--width"
  std::string help;
  std::variant<int64_t*, double*, std::string*> value;
  double least = 0;  ///< of a number
  double most = 1e9;
  std::vector<std::string> choices = {};  ///< of a text; none: it is a path
};

/// What an example says about itself for --help.
struct Program {
  std::string description;
  std::string data_help;   ///< what --data names
  std::string batch_help;  ///< what --batch-size counts
  std::vector<OwnFlag> flags = {};
};

/// Parses the flags into `flags`, whose present values are the defaults.  Returns -1 to go on, else the exit status: 0
/// after --help, 2 after printing what is wrong on stderr.  Flags of distributed::launch (--nproc ...) are documented and
/// left for it.  Relative paths count from where the user typed the command, under `bazelw run` too: the process moves
/// there.
int parse_training_flags(int argc, char** argv, const Program& program, TrainingFlags& flags);

/// The same for a program that has these flags alone and starts no ranks.
int parse_flags(int argc, char** argv, const std::string& description, const std::vector<OwnFlag>& flags);

/// Moves to the folder where the user typed the command: `bazel run` starts programs in one of its own, and says where the
/// user was.  False, after a line on stderr, where that folder cannot be entered.
bool enter_users_folder();

}  // namespace examples
