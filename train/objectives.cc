#include <tandem/train/objectives.h>

#include <set>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/optim/optimizer.h>
#include <tandem/optim/schedule.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

void save(const Objective& objective, State& shared, State& rank) {
  shared.set("optimizer", objective.optimizer.state_dict());
  if (objective.schedule != nullptr) shared.set("schedule", objective.schedule->state_dict());
  if (objective.scaler) shared.set("scaler", objective.scaler->state_dict());
  if (State hooks = objective.reducer.state_dict(); !hooks.empty()) rank.set("gradient_hooks", std::move(hooks));
}

const State& part_of(const State& state, const std::string& path) {
  return path.empty() ? state : state.get<State>(path);
}

void load_schedule(optim::Schedule& schedule, const State& saved, int64_t shift) {
  State state = schedule.state_dict();
  schedule.load_state_dict(saved);
  const std::vector<double> rates = schedule.last_lr();
  state.set("initial_lr", saved.get<State>("initial_lr"));
  state.set("steps", schedule.steps() + shift);
  schedule.load_state_dict(state);
  if (shift != 0 || schedule.last_lr() != rates) schedule.set_steps(schedule.steps());
}

void load(Objective& objective, const io::LoadedCheckpoint& loaded, const std::string& path, int world_size,
          int64_t shift) {
  const State &shared = part_of(loaded.state.shared, path), &rank = part_of(loaded.state.rank, path);
  objective.optimizer.load_state_dict(shared.get<State>("optimizer"));
  if (objective.schedule != nullptr) load_schedule(*objective.schedule, shared.get<State>("schedule"), shift);
  if (objective.scaler) objective.scaler->load_state_dict(shared.get<State>("scaler"));
  if (rank.find("gradient_hooks") == nullptr) return;
  if (loaded.world_size == world_size) return objective.reducer.load_state_dict(rank.get<State>("gradient_hooks"));
  objective.reducer.load_state_dict(loaded.world_size, [&](int saved) {
    return part_of(io::load_rank_state(loaded, saved), path).get<State>("gradient_hooks");
  });
}

}  // namespace

std::vector<Objective> make_objectives(const TrainerOptions& options, const TrainerComponents& components,
                                       const std::shared_ptr<distributed::ProcessGroup>& group) {
  std::vector<Objective> objectives;
  objectives.push_back({{options.loss_name, {}, components.reducer, components.optimizer, components.schedule}, {}, 0});
  for (const TrainerObjective& further : components.further) {
    TANDEM_CHECK(ValueError, further.loss != nullptr, options.name, ": the objective '", further.name,
                 "' has no loss, expected a function");
    objectives.push_back({further, {}, 0});
  }
  std::set<std::string> names;
  for (Objective& objective : objectives) {
    TANDEM_CHECK(ValueError, !objective.name.empty() && objective.name.find('.') == std::string::npos, options.name,
                 ": the name of a loss is '", objective.name, "', expected a text without '.'");
    TANDEM_CHECK(ValueError, names.insert(objective.name).second, options.name, ": two losses have the name '",
                 objective.name, "'; name them by loss_name and further");
    if (options.amp != kFloat16) continue;
    objective.scaler.emplace(optim::GradScalerOptions{.all_reduce_found_inf = [group](const Tensor& found) {
      group->all_reduce(found, distributed::ReduceOp::kMax, {.name = "whether gradients are finite"});
    }});
  }
  return objectives;
}

std::vector<std::string> names_of(const std::vector<Objective>& objectives) {
  std::vector<std::string> names;
  for (const Objective& objective : objectives) names.push_back(objective.name);
  return names;
}

void save_objectives(const std::vector<Objective>& objectives, State& shared, State& rank) {
  save(objectives[0], shared, rank);
  for (size_t i = 1; i < objectives.size(); ++i) {
    State further_shared, further_rank;
    save(objectives[i], further_shared, further_rank);
    shared.set("further." + objectives[i].name, std::move(further_shared));
    rank.set("further." + objectives[i].name, std::move(further_rank));
  }
}

void load_objectives(std::vector<Objective>& objectives, const io::LoadedCheckpoint& loaded, int world_size,
                     int64_t shift) {
  for (size_t i = 0; i < objectives.size(); ++i) {
    load(objectives[i], loaded, i == 0 ? "" : "further." + objectives[i].name, world_size, shift);
  }
}

}}}  // namespace tandem::v0::train
