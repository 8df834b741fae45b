// The output files of a training: checks before the first step, and a fallback location for the weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tandem/base/lock_file.h>
#include <tandem/distributed/process_group.h>
#include <tandem/io/safetensors.h>
#include <tandem/train/trainer.h>

namespace tandem { inline namespace v0 { namespace train {

/// The paths of all outputs of a training with these options.
struct OutputPaths {
  explicit OutputPaths(const TrainerOptions& options);

  std::string model;  ///< "OUT/model.safetensors"
  std::string loss_chart;
  std::string throughput_chart;
  std::string events;                ///< folder
  std::string checkpoints;           ///< folder
  std::vector<std::string> folders;  ///< paths of TrainerOptions::folders
  std::string trace;                 ///< "": no trace
};

/// Creates the folders of `out` and `trace`, locks `out`, and checks that every output can be written. `weights` are
/// written completely to a temporary file, which also detects a full disk or a file size limit. Existing files are not
/// changed, and new files are removed. Throws IoError "NAME: an output cannot be written; training is not started" with
/// the path and the reason, and StateError if another training has locked `out`.
std::unique_ptr<LockFile> lock_outputs(const TrainerOptions& options, const io::NamedTensors& weights);

/// "" if all ranks of the group see the same folder and can write to it; otherwise a text that names it, and the ranks
/// and hosts that cannot. If the folder does not exist, it is created and removed. Collective.
std::string unshared_folder(const std::string& folder, distributed::ProcessGroup& group);

/// Saves the weights to `path`. If that fails, saves them to a new file "NAME-model-K.safetensors" in the current
/// folder or, if that fails too, in the system's temporary folder, and throws IoError with this file and the reasons.
/// If all three fail, throws IoError with the three reasons.
void save_weights(const std::string& name, const std::string& path, const io::NamedTensors& weights);

}}}  // namespace tandem::v0::train
