// The losses of a Trainer's step, each with its reducer, optimizer and schedule. Private to this package.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/io/checkpoint.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tensor/state.h>
#include <tandem/train/trainer.h>

namespace tandem { inline namespace v0 { namespace train {

/// A loss of each step, and its reducer, optimizer and schedule.
struct Objective : TrainerObjective {
  std::optional<optim::GradScaler> scaler = {};  ///< with amp kFloat16
  int64_t reported_step = 0;                     ///< step of the last report of the communication hooks
};

/// The objectives of a step, in order. The loss of the first is the argument of fit(). Throws ValueError for a missing
/// loss and for names that are empty, contain a '.' or are equal.
std::vector<Objective> make_objectives(const TrainerOptions& options, const TrainerComponents& components,
                                       const std::shared_ptr<distributed::ProcessGroup>& group);

std::vector<std::string> names_of(const std::vector<Objective>& objectives);

/// Adds the states of the objectives: to `shared` what is equal on all ranks, to `rank` the rest. The states of the
/// first objective have no prefix.
void save_objectives(const std::vector<Objective>& objectives, State& shared, State& rank);
/// Loads them on one of `world_size` ranks. A schedule keeps the options that the program has given, so that a schedule
/// over total_steps() ends with the training; `shift` is added to its number of steps.
void load_objectives(std::vector<Objective>& objectives, const io::LoadedCheckpoint& loaded, int world_size,
                     int64_t shift);

}}}  // namespace tandem::v0::train
