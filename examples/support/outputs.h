// The files that a training leaves: tried before its first step, and its weights kept where their place cannot be written.
#pragma once

#include <tandem/examples/support/flags.h>
#include <tandem/io/safetensors.h>

#include <string>

namespace examples {

/// The paths of what a training with these flags writes.
struct OutputPaths {
  explicit OutputPaths(const TrainingFlags& flags);

  std::string model;  ///< "OUT/model.safetensors"
  std::string loss_chart;
  std::string throughput_chart;
  std::string events;       ///< folder
  std::string checkpoints;  ///< folder
  std::string trace;        ///< "": none
};

/// Makes the folders of --out and --trace, and writes or opens every output for a moment: the weights, these tensors, are written
/// whole to a second file, so that a full disk or a limit of file sizes is found too.  Existing files are not changed and new
/// ones are removed.  Throws IoError "NAME: an output cannot be written, nothing is trained", then the path and the reason.
void try_outputs(const std::string& name, const TrainingFlags& flags, const tandem::io::NamedTensors& weights);

/// Saves the weights to `path`.  Where that fails, saves them to a new file "NAME-model-K.safetensors" in the current folder,
/// else in the system's temporary folder, and throws IoError that names the file and says why; or, if all three fail, why each
/// did.
void save_weights(const std::string& name, const std::string& path, const tandem::io::NamedTensors& weights);

}  // namespace examples
