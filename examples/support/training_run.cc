#include <tandem/examples/support/training_run.h>

#include <tandem/base/file.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace examples {

namespace td = tandem;

namespace {

constexpr int64_t kTracedSteps = 30;

}  // namespace

int64_t total_steps(const TrainingFlags& flags, int64_t batches_per_epoch) {
  const int64_t total = std::max<int64_t>(1, flags.epochs * batches_per_epoch / flags.accumulate);
  return flags.max_steps > 0 ? std::min(total, flags.max_steps) : total;
}

void check_batches(const std::string& name, const td::data::Dataset& train, const std::string& items,
                   const td::data::DataLoader& loader, const td::data::Sampler& sampler,
                   const td::distributed::Context& ctx, const TrainingFlags& flags) {
  if (loader.size() > 0) return;
  throw td::ValueError(td::str(name, ": not enough data for one batch: ", train.size(), " ", items, " over ",
                               count(ctx.world_size(), "rank"), " are ", sampler.size(),
                               " per rank, fewer than --batch-size ", flags.batch_size));
}

td::distributed::ReducerOptions reducer_options(const TrainingFlags& flags) {
  td::distributed::ReducerOptions options;
  for (const std::string& name : flags.compress) {
    if (name == "fp16") options.hooks.push_back(td::distributed::fp16_compress());
    if (name == "bf16") options.hooks.push_back(td::distributed::bf16_compress());
    if (name == "power_sgd") options.hooks.push_back(td::distributed::power_sgd({.seed = flags.seed}));
  }
  options.hook_report_every = flags.hook_report_every;
  return options;
}

td::data::Batch& Batches::next() {
  if (position_) ++*position_;
  while (!position_ || *position_ == std::default_sentinel) position_.emplace(loader_.begin());
  return **position_;
}

TrainingRun::TrainingRun(td::distributed::Context& ctx, const TrainingFlags& flags, TrainingRunOptions options,
                         TrainingComponents parts)
    : ctx_(ctx),
      flags_(flags),
      options_(std::move(options)),
      components_(parts),
      total_(total_steps(flags, options_.batches_per_epoch)),
      steps_per_epoch_(std::max<int64_t>(1, options_.batches_per_epoch / flags.accumulate)),
      validate_every_(options_.validate_every > 0 ? options_.validate_every : steps_per_epoch_),
      items_per_step_(options_.items_per_batch * flags.accumulate * ctx.world_size()),
      paths_(flags),
      progress_({.enabled = ctx.rank() == 0,
                 .total_steps = total_,
                 .items_per_step = items_per_step_,
                 .items = options_.items,
                 .steps_per_epoch = steps_per_epoch_,
                 .log_every = flags.log_every}) {
  if (is_rank0()) check_outputs(options_.name, flags, components_.model.state_dict().tensors());
  ctx_.group()->barrier();  // if rank 0 throws, the barrier fails on all ranks
  if (flags.amp != "float16") return;
  scaler_.emplace(td::optim::GradScalerOptions{.all_reduce_found_inf = [group = ctx.group()](const td::Tensor& found) {
    group->all_reduce(found, td::distributed::ReduceOp::kMax, {.name = "whether gradients are finite"});
  }});
}

void TrainingRun::start() {
  const std::string times = flags_.accumulate > 1 ? td::str(flags_.accumulate, " times ") : "";
  note(td::str("batch ", times, flags_.batch_size, " per rank, ",
               flags_.accumulate * flags_.batch_size * ctx_.world_size(), " over all ranks; ", count(total_, "step")));
  if (flags_.resume) {
    resume();
  } else if (td::path_exists(options_.name.c_str(), paths_.checkpoints + "/latest")) {
    throw td::ValueError(td::str(options_.name, ": '", paths_.checkpoints,
                                 "' contains checkpoints; continue from them with --resume, or choose another --out"));
  }
  tracing_ = !flags_.trace.empty();
  if (tracing_) td::start_trace();
}

std::vector<std::pair<std::string, std::string>> TrainingRun::identity() const {
  std::vector<std::pair<std::string, std::string>> all = options_.identity;
  all.emplace_back("--batch-size", std::to_string(flags_.batch_size));
  all.emplace_back("--accumulate", std::to_string(flags_.accumulate));
  all.emplace_back("--lr", td::str(flags_.lr));
  all.emplace_back("--amp", flags_.amp);
  std::string compress;
  for (const std::string& name : flags_.compress) compress += (compress.empty() ? "" : ",") + name;
  all.emplace_back("--compress", compress);
  all.emplace_back("--seed", std::to_string(flags_.seed));
  return all;
}

void TrainingRun::check_identity(const td::State& saved) const {
  std::vector<std::pair<std::string, std::string>> differences;
  size_t width = 0;
  for (const auto& [name, current] : identity()) {
    const auto* value = saved.find(name);
    const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    if (text != nullptr && *text == current) continue;
    differences.emplace_back(name, td::str("checkpoint: ", text != nullptr ? *text : "missing", ", now: ", current));
    width = std::max(width, name.size());
  }
  if (differences.empty()) return;
  std::string text =
      td::str(options_.name, ": the checkpoints in '", paths_.checkpoints, "' were saved with other flags");
  for (const auto& [name, what] : differences) {
    text += "\n  " + name + std::string(width + 2 - name.size(), ' ') + what;
  }
  throw td::ValueError(text + "\n  use the checkpoint's flags, or choose another --out");
}

td::io::Checkpointer& TrainingRun::checkpointer() {
  if (checkpointer_ == nullptr) {
    td::io::CheckpointOptions options;
    options.rank = ctx_.rank();
    options.world_size = ctx_.world_size();
    options.barrier = [group = ctx_.group()] { group->barrier(); };
    checkpointer_ = std::make_unique<td::io::Checkpointer>(paths_.checkpoints, std::move(options));
  }
  return *checkpointer_;
}

void TrainingRun::resume() {
  const auto loaded = checkpointer().load_latest();
  // Ranks that resume from different steps would train with different weights.
  const td::Tensor range = td::tensor({loaded ? loaded->step : int64_t{-1}, loaded ? -loaded->step : int64_t{1}});
  ctx_.group()->all_reduce(range, td::distributed::ReduceOp::kMax);
  const auto steps = range.to_vector<int64_t>();
  if (steps[0] != -steps[1]) {
    throw td::ValueError(td::str(options_.name, ": ranks found different checkpoints in '", paths_.checkpoints,
                                 "': of steps ", -steps[1], " and ", steps[0], "; all ranks must see the same folder"));
  }
  if (!loaded) {
    note(td::str("no checkpoint in ", paths_.checkpoints, "; training starts from the beginning"));
    return;
  }
  const td::State& rank = loaded->state.rank;
  check_identity(rank.get<td::State>("identity"));
  components_.model.load_state_dict(loaded->state.model);
  components_.optimizer.load_state_dict(loaded->state.optimizer.get<td::State>("optimizer"));
  if (components_.schedule != nullptr) {
    components_.schedule->load_state_dict(loaded->state.optimizer.get<td::State>("schedule"));
  }
  components_.sampler.load_state_dict(rank.get<td::State>("sampler"));
  td::default_generator(ctx_.device()).load_state_dict(rank.get<td::State>("generator"));
  if (scaler_) scaler_->load_state_dict(loaded->state.optimizer.get<td::State>("scaler"));
  metrics_.load_state_dict(rank.get<td::State>("metrics"));
  if (rank.find("gradient_hooks")) components_.reducer.load_state_dict(rank.get<td::State>("gradient_hooks"));
  progress_.start_at(loaded->step);
  first_step_ = saved_step_ = events_step_ = loaded->step;
  note(td::str("resumed from ", paths_.checkpoints, ": ", count(loaded->step, "step"), " of ", total_, " done"));
  if (loaded->world_size != ctx_.world_size()) {
    note(td::str("the checkpoint was saved by ", count(loaded->world_size, "rank"), ": with ", ctx_.world_size(),
                 " the results are not bit-identical to an uninterrupted run"));
  }
}

bool TrainingRun::has_next_step() {
  if (step() >= total_ || ctx_.should_stop()) return false;
  span_.emplace("step", "step");
  return true;
}

void TrainingRun::backward(const td::Tensor& loss) {
  const auto num_micro_batches = static_cast<double>(flags_.accumulate);
  const td::Tensor scaled = flags_.accumulate == 1 ? loss : loss * (1 / num_micro_batches);
  scaler_ ? scaler_->backward(scaled) : scaled.backward();
  step_loss_ += loss.item() / num_micro_batches;
}

void TrainingRun::unscale_gradients() {
  if (scaler_) scaler_->unscale_(components_.optimizer);
}

void TrainingRun::optimizer_step() {
  if (!scaler_) return components_.optimizer.step();
  const bool stepped = scaler_->step(components_.optimizer);
  scaler_->update();
  if (stepped) return;
  note(
      td::str("step ", step() + 1, " skipped: gradients are not finite; loss scale reduced to ", scaler_->get_scale()));
}

void TrainingRun::end_step(const std::function<Validation()>& evaluate) {
  span_.reset();
  const double loss = std::exchange(step_loss_, 0);
  progress_.step(loss);
  if (!std::isfinite(loss)) {
    throw td::ValueError(td::str(options_.name, ": the loss of step ", step(),
                                 " is not finite: the training diverged; try a smaller --lr than ", flags_.lr));
  }
  metrics_.add_step(loss, progress_.step_seconds());
  if (flags_.hook_report_every > 0 && step() % flags_.hook_report_every == 0) {
    note(td::str("gradients, ", to_string(components_.reducer.hook_report())));
  }
  if (tracing_ && step() - first_step_ == kTracedSteps) end_trace();
  if (ctx_.should_stop()) return;  // finish() saves
  if (step() % validate_every_ == 0 || step() == total_) validate(evaluate);
  if (flags_.save_every > 0 && step() % flags_.save_every == 0) save_checkpoint();
}

void TrainingRun::validate(const std::function<Validation()>& evaluate) {
  components_.reducer.broadcast_buffers();
  const Validation result = evaluate();
  metrics_.add_validation(step(), result);
  report();
  components_.reducer.exclude_step();
  const bool by_epoch = validate_every_ == steps_per_epoch_;
  std::string text = by_epoch ? td::str("epoch ", (step() - 1) / steps_per_epoch_ + 1) : td::str("step ", step());
  text += td::str(": loss ", fixed(progress_.loss(), 4), ", ", options_.validation, " loss ", fixed(result.loss, 4));
  if (result.accuracy) text += td::str(", ", options_.validation, " accuracy ", fixed(100 * *result.accuracy, 2), " %");
  note(text);
}

void TrainingRun::report() {
  metrics_.merge(*ctx_.group());
  if (!is_rank0()) return;
  add_events();
  write_chart(paths_.loss_chart, metrics_.loss_plot(options_.title, options_.validation));
  write_chart(paths_.throughput_chart, metrics_.throughput_plot(options_.title, options_.items, items_per_step_));
}

void TrainingRun::write_chart(const std::string& path, const Plot& plot) {
  try {
    td::write_file(options_.name.c_str(), path, to_svg(plot));
  } catch (const td::IoError& error) {
    if (!std::exchange(warned_, true)) td::log(td::LogLevel::kWarning, error.what(), "; training continues");
  }
}

void TrainingRun::add_events() {
  if (events_ == nullptr) {
    events_ = std::make_unique<td::io::EventFile>(paths_.events);
    if (first_step_ > 0) events_->resume(first_step_ + 1);
  }
  while (events_step_ < step()) {
    const auto i = static_cast<size_t>(events_step_++);
    events_->add_scalar("loss/training", metrics_.losses()[i], events_step_);
    const double seconds = metrics_.seconds()[i];
    if (!std::isnan(seconds)) {
      events_->add_scalar(options_.items + " per second", static_cast<double>(items_per_step_) / seconds, events_step_);
    }
  }
  events_->add_scalar("learning rate", components_.optimizer.lr(), step());
  const auto result = metrics_.validation(step());
  if (!result) return;
  events_->add_scalar("loss/" + options_.validation, result->loss, step());
  if (result->accuracy) events_->add_scalar("accuracy/" + options_.validation, *result->accuracy, step());
}

void TrainingRun::save_checkpoint() {
  components_.reducer.broadcast_buffers();
  metrics_.merge(*ctx_.group());
  td::io::CheckpointState state;
  state.model = components_.model.state_dict();
  state.optimizer.set("optimizer", components_.optimizer.state_dict());
  if (components_.schedule != nullptr) state.optimizer.set("schedule", components_.schedule->state_dict());
  if (scaler_) state.optimizer.set("scaler", scaler_->state_dict());
  td::State flags;
  for (const auto& [name, value] : identity()) flags.set(name, value);
  state.rank.set("identity", flags);
  state.rank.set("sampler", components_.sampler.state_dict());
  state.rank.set("generator", td::default_generator(ctx_.device()).state_dict());
  state.rank.set("metrics", metrics_.state_dict());
  if (td::State hooks = components_.reducer.state_dict(); !hooks.empty())
    state.rank.set("gradient_hooks", std::move(hooks));
  if (checkpointer().save(step(), state)) saved_step_ = step();
  components_.reducer.exclude_step();
}

void TrainingRun::end_trace() {
  tracing_ = false;
  const auto events = td::distributed::gather_trace(*ctx_.group());
  components_.reducer.exclude_step();
  if (!is_rank0()) return;
  try {
    td::profile::write_chrome_trace(paths_.trace, events);
    note(td::str("trace of the first steps: ", paths_.trace, " (open it at ui.perfetto.dev)"));
  } catch (const td::IoError& error) {
    td::log(td::LogLevel::kWarning, error.what(), "; training continues");
  }
}

void TrainingRun::save_model() {
  components_.reducer.broadcast_buffers();
  if (!is_rank0()) return;
  save_weights(options_.name, paths_.model, components_.model.state_dict().tensors());
  note(td::str("saved ", paths_.model));
}

void TrainingRun::finish() {
  if (tracing_) end_trace();  // the run had fewer than kTracedSteps steps
  const bool stopped = ctx_.should_stop();
  if (step() != saved_step_ && (flags_.save_every > 0 || stopped)) save_checkpoint();
  if (stopped) {
    report();  // without a signal the last step's validation has called it
    note(td::str("stopped by a signal after step ", step(), " of ", total_));
    if (saved_step_ == step()) note("use --resume to continue");
  } else if (const auto result = metrics_.validation(step())) {
    const std::string what = result->accuracy ? td::str(" accuracy ", fixed(100 * *result->accuracy, 2), " %")
                                              : td::str(" loss ", fixed(result->loss, 4));
    note(td::str(options_.validation, what, " after ", count(step(), "step")));
  }
  const td::distributed::OverlapReport overlap = components_.reducer.report();
  if (overlap.steps > 0) note(td::distributed::to_string(overlap));
  save_model();
}

}  // namespace examples
