// Checkpoints: all that a training run needs to go on, in a folder that survives crashes.
//
//     FOLDER/latest                            the name of the newest complete checkpoint, for people and scripts
//     FOLDER/lock                              held by rank 0 while it lives
//     FOLDER/step-00000120/model.safetensors   written by rank 0
//                          optimizer.safetensors
//                          rank-R.safetensors  written by rank R
//                          manifest.json       versions, world size, step, sizes and checksums; written last
//
// Every file is written beside its name, forced to disk and renamed; a folder without manifest.json is incomplete and
// counts for nothing.  So at any moment, a power failure included, the folder holds the newest checkpoint that was
// complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

struct Manifest;

struct CheckpointState {
  State model;      ///< the same on every rank; rank 0's is saved
  State optimizer;  ///< likewise; schedules, scaler and what else is common to the ranks
  State rank;       ///< the calling rank's own: generators, position in the data
};

struct CheckpointOptions {
  int rank = 0;
  int world_size = 1;
  std::function<void()> barrier = {};  ///< returns when every rank has called it; may be empty for one rank
  int keep = 2;       ///< complete checkpoints to keep; older ones are removed after a new one is complete
  bool fail = false;  ///< a checkpoint that cannot be saved throws, instead of a logged warning
};

struct LoadedCheckpoint {
  int64_t step = 0;
  int world_size = 1;  ///< of the run that saved
  CheckpointState state;
};

/// The newest complete checkpoint of `folder`, or nullopt if there is none.  `rank` gets its own rank file, or rank 0's
/// if the run that saved had fewer ranks; generators and samplers convert what they load.
///
/// Size and checksum of every file of the checkpoint are compared with the manifest, whichever rank asks, so that all
/// ranks decide alike.  A damaged checkpoint is passed over for the one saved before it, with a logged warning that
/// says what is wrong.  Throws IoError saying so for each if there are checkpoints and none can be loaded.
TANDEM_API std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, int rank = 0);

/// Saves and loads the checkpoints of one run.  Each rank has one, and they act together; the folder is one that all
/// ranks see.  Not safe from many threads.
class TANDEM_API Checkpointer {
 public:
  /// Makes the folder, locks it on rank 0, and there removes what a run that died while it saved left behind.
  ///
  /// Throws ValueError for a rank outside the world, a world of several without a barrier, and keep < 1; StateError on
  /// rank 0, naming the other process, if another run holds the folder.  A folder that cannot be made or written is no
  /// error here, so that a run can load from it: saving will say so.
  explicit Checkpointer(std::string folder, CheckpointOptions options = {});
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves a checkpoint; every rank calls it at the same step.  Returns, on every rank the same, whether it is complete
  /// and on disk.  If not (a full disk, no permission), every rank logs a warning with the reason it knows, what was
  /// written is removed, and older checkpoints are as they were; with options.fail every rank throws IoError instead.
  /// A checkpoint of the same step that is there already is replaced once the new one is complete.
  ///
  /// Throws ValueError for a negative step, and what save_state throws for a state that cannot be saved.
  bool save(int64_t step, const CheckpointState& state);

  /// load_checkpoint of this folder and rank.
  std::optional<LoadedCheckpoint> load_latest() const { return load_checkpoint(folder_, options_.rank); }

 private:
  void lock();
  void clean() const;
  std::string path_of(int64_t step) const;

  /// The parts of `save`: what rank 0 does before the others, what each rank does, what rank 0 does after them, and
  /// what is left once the checkpoint counts.
  void make_folder(int64_t step);
  void write_files(int64_t step, const CheckpointState& state, Manifest& manifest) const;
  void write_manifest(int64_t step, Manifest& manifest) const;
  void retire_older(int64_t step) const;
  std::string what_is_missing(int64_t step) const;

  std::string folder_;
  CheckpointOptions options_;
  int lock_ = -1;  ///< rank 0: descriptor of the locked file
};

}}}  // namespace tandem::v0::io
