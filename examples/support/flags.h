// What the examples' command lines share.
#pragma once

#include <cstdint>
#include <string>

namespace examples {

struct TrainingFlags {
  std::string device = "cpu";
  int64_t epochs = 5;
  int64_t max_steps = 0;  ///< 0 = no limit
  int64_t batch_size = 64;
  double lr = 0.05;
  uint64_t seed = 1;
  std::string data;  ///< folder; "" = generated data
  std::string out = ".";
  std::string trace;  ///< "" = none
  std::string model;
};

/// Parses the flags into `flags`, whose present values are the defaults.  `models` are the allowed values of --model,
/// by spaces. Returns -1 to go on, else the exit status: 0 after --help, 2 after printing what is wrong on stderr.
/// Flags of distributed::launch (--nproc ...) are documented and left for it.  Relative paths count from where the user
/// typed the command, under `bazelw run` too: the process moves there.
int parse_training_flags(int argc, char** argv, const std::string& description, const std::string& models,
                         TrainingFlags& flags);

/// Makes the folders that `out` and `trace` need, so that a wrong path is noticed before the training.  Throws
/// std::runtime_error naming the folder and the reason.
void make_output_folders(const TrainingFlags& flags);

}  // namespace examples
