// Crash-safe checkpoints: the complete state of a training run, in a folder.
//
//     FOLDER/latest                              the name of the newest complete checkpoint, for users and scripts
//     FOLDER/lock                                locked by the Checkpointer of rank 0
//     FOLDER/step-00000120/model.safetensors     written by rank 0
//                          optimizer.safetensors
//                          rank-R.safetensors    written by rank R
//                          pieces-R.safetensors  written by rank R, only if it has pieces (tensor/state_pieces.h)
//                          manifest.json         versions, world size, step, sizes and checksums; written last
//
// Every file is written under a temporary name, flushed to disk and renamed. A checkpoint without manifest.json is
// incomplete and is ignored. So the newest complete checkpoint can be loaded after a crash or power failure at any
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {
class LockFile;
}}  // namespace tandem::v0

namespace tandem { inline namespace v0 { namespace io {

struct Manifest;

/// The state of a run on one rank. Of a tensor of `model` or `shared` a rank may have only a piece (make_pieces); every
/// rank saves its own pieces.
struct CheckpointState {
  State model;   ///< equal on all ranks, except for pieces; saved by rank 0
  State shared;  ///< equal on all ranks, except for pieces; saved by rank 0: optimizer, schedules, gradient scaler
  State rank;    ///< of this rank only; saved by every rank: generators, sampler
};

/// Options of Checkpointer.
struct CheckpointOptions {
  int rank = 0;                        ///< of this process or thread
  int world_size = 1;                  ///< number of ranks
  std::function<void()> barrier = {};  ///< returns when all ranks have called it; may be empty if world_size is 1
  int keep = 2;  ///< number of complete checkpoints to keep; older ones are removed after a successful save
  bool throw_on_failure = false;  ///< if saving fails, throw IoError instead of logging a warning
};

/// Result of load_checkpoint.
struct LoadedCheckpoint {
  int64_t step = 0;       ///< the argument of save()
  int world_size = 1;     ///< of the run that saved the checkpoint
  CheckpointState state;  ///< tensors are on the CPU; tensors in pieces have the pieces of all ranks
  std::string folder;     ///< of this checkpoint
};

/// The rank state that `rank` saved in a loaded checkpoint, for example to convert the states of all ranks for another
/// number of ranks. Throws IoError if it cannot be read, or was removed by later saves; ValueError unless `rank` is in
/// [0, world_size).
TANDEM_API State load_rank_state(const LoadedCheckpoint& checkpoint, int rank);

/// Loads the newest complete checkpoint of `folder`; nullopt if the folder has no checkpoint. Tensors are on the CPU.
/// The rank state is from the file of `rank`, or of rank 0 if the run that saved had fewer ranks: generators and
/// samplers convert it, communication hooks need the states of all ranks (load_rank_state). Tensors in pieces have the
/// pieces of all ranks that saved, which are views of memory-mapped files; StateReader reads them for any number of
/// ranks.
///
/// Every rank verifies size and checksum of all files against the manifest, so all ranks select the same checkpoint. A
/// damaged checkpoint is skipped with a logged warning, and the one saved before it is loaded.
///
/// Throws ValueError for a negative rank. Throws IoError, with a line for each checkpoint, if the folder has
/// checkpoints and each of them is damaged, unreadable or of a newer format.
TANDEM_API std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, int rank = 0);

/// Saves and loads the checkpoints of one run:
///
///     io::Checkpointer checkpoints("run", {.rank = group.rank(), .world_size = group.size(),
///                                          .barrier = [&] { group.barrier(); }});
///     checkpoints.save(step, {model.state_dict(), optimizer.state_dict(), rank_state});
///
/// Every rank creates one, for the same folder of a shared file system. Not thread-safe.
class TANDEM_API Checkpointer {
 public:
  /// On rank 0: creates and locks the folder, and removes incomplete checkpoints of a run that crashed.
  ///
  /// Throws ValueError for a rank outside [0, world_size), a world_size above 1 without a barrier, and keep < 1.
  /// Throws StateError on rank 0, with the name of the other process, if another run has locked the folder. If the
  /// folder cannot be created or written, the constructor logs a warning and does not throw, because loading may still
  /// work; save() reports the error.
  explicit Checkpointer(std::string folder, CheckpointOptions options = {});
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves a checkpoint. Collective: all ranks call it with the same step. Returns, with the same value on all ranks,
  /// whether the checkpoint is complete and on disk. If it is not (disk full, no permission), every rank logs a
  /// warning with its reason, or throws IoError if options.throw_on_failure is set; the written files are removed and
  /// older checkpoints are unchanged. An older checkpoint of the same step is replaced after the new one is complete.
  ///
  /// Pieces that do not fit (see merge_pieces) are a failure too.
  ///
  /// Throws ValueError for a negative step, and the errors of save_state for a state that cannot be saved.
  bool save(int64_t step, const CheckpointState& state);

  /// Begins a checkpoint and returns when its bytes are in host memory; a thread writes them while training goes on.
  /// The checkpoint is complete after wait(), which save() and async_save() call first, so at most one is in progress.
  /// Collective. Needs as much memory as the files of this rank. Throws as save(), also for the checkpoint before.
  ///
  /// Without wait() the destructor waits for the thread and leaves an incomplete checkpoint, which the next start
  /// removes.
  void async_save(int64_t step, const CheckpointState& state);

  /// Whether the thread of async_save has written this rank's files, so that wait() does not wait for it.
  bool is_written() const;

  /// Completes the checkpoint of async_save. Collective; returns and throws as save(). True if there is none.
  bool wait();

  /// load_checkpoint(folder, options.rank)
  std::optional<LoadedCheckpoint> load_latest() const { return load_checkpoint(folder_, options_.rank); }

 private:
  void lock();
  void remove_incomplete() const;
  std::string path_of(int64_t step) const;

  struct Saving;

  // The phases of save().
  std::unique_ptr<Saving> saving_of(int64_t step, const CheckpointState& state) const;  ///< on all ranks
  void begin(Saving& saving);                                                           ///< on all ranks
  void create_step_folder(int64_t step);                                                ///< on rank 0
  void write_files(Saving& saving) const;                                               ///< on all ranks
  bool finish(Saving& saving) const;                                                    ///< on all ranks
  void write_manifest(Saving& saving) const;                                            ///< on rank 0
  void remove_older(int64_t step) const;                                                ///< on rank 0
  std::string missing_files(int64_t step) const;
  void barrier() const;

  std::string folder_;
  CheckpointOptions options_;
  std::unique_ptr<LockFile> lock_;  ///< on rank 0
  std::unique_ptr<Saving> saving_;  ///< of async_save
};

}}}  // namespace tandem::v0::io
