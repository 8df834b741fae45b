#include <tandem/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/format.h>
#include <tandem/base/lock_file.h>
#include <tandem/base/log.h>
#include <tandem/base/math.h>
#include <tandem/base/trace.h>
#include <tandem/data/data_loader.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/distributed/gather_trace.h>
#include <tandem/io/checkpoint.h>
#include <tandem/io/event_file.h>
#include <tandem/nn/module.h>
#include <tandem/nn/training_modes.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/optimizer.h>
#include <tandem/optim/schedule.h>
#include <tandem/profile/trace_file.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/train/history.h>
#include <tandem/train/objectives.h>
#include <tandem/train/outputs.h>
#include <tandem/train/progress.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

constexpr int64_t kTracedSteps = 30;

/// An endless sequence of batches, epoch after epoch. The loader must not be empty.
class Batches {
 public:
  explicit Batches(data::DataLoader& loader) : loader_(loader) {}
  /// The next batch; the reference is valid until the next call.
  const data::Batch& next() {
    if (position_) ++*position_;
    while (!position_ || *position_ == std::default_sentinel) position_.emplace(loader_.begin());
    return **position_;
  }

 private:
  data::DataLoader& loader_;
  std::optional<data::DataLoader::Iterator> position_;
};

/// Autocast while in scope, if there is a dtype.
class Amp {
 public:
  explicit Amp(std::optional<DType> dtype) {
    if (dtype) autocast_.emplace(*dtype);
  }

 private:
  std::optional<Autocast> autocast_;
};

/// The options, if they are in range.
TrainerOptions checked(TrainerOptions options) {
  const auto check = [&](const char* name, auto value, auto least) {
    TANDEM_CHECK(ValueError, value >= least, options.name, ": ", name, " is ", value, ", expected at least ", least);
  };
  check("items_per_sample", options.items_per_sample, 1);
  check("epochs", options.epochs, 1);
  check("max_steps", options.max_steps, 0);
  check("accumulate", options.accumulate, 1);
  check("max_norm", options.max_norm, 0.0);
  check("evaluate_every", options.evaluate_every, 0);
  check("save_every", options.save_every, 0);
  check("log_every", options.log_every, 0);
  TANDEM_CHECK(ValueError, !options.amp || *options.amp == kFloat16 || *options.amp == kBFloat16, options.name,
               ": amp is ", *options.amp, ", expected float16 or bfloat16");
  TANDEM_CHECK(ValueError, !options.out.empty(), options.name, ": out is empty, expected a folder");
  return options;
}

/// "test loss 0.3102, test accuracy 93.20 %".
std::string describe(const Evaluation& evaluation, const std::string& set) {
  std::string text;
  for (const auto& [name, value] : evaluation) {
    text += str(text.empty() ? "" : ", ", set, " ", name, " ");
    text += name.ends_with("accuracy") ? format_fixed(100 * value, 2) + " %" : format_fixed(value, 4);
  }
  return text;
}

}  // namespace

int64_t TrainerOptions::total_steps(int64_t batches_per_epoch) const {
  const int64_t total = std::max<int64_t>(1, epochs * ceil_div(batches_per_epoch, accumulate));
  return max_steps > 0 ? std::min(total, max_steps) : total;
}

class Trainer::Impl {
 public:
  Impl(distributed::Context& ctx, TrainerOptions options, TrainerComponents components);

  void fit(const std::function<Tensor(const data::Batch&)>& loss, const std::function<Evaluation()>& evaluate);
  void note(const std::string& text) { progress_.note(text); }
  int64_t step() const { return progress_.steps(); }
  Plot loss_plot() const { return history_.loss_plot(options_.title, options_.evaluation_set); }

 private:
  std::vector<std::pair<std::string, std::string>> identity() const;
  io::Checkpointer& checkpointer();
  void start();
  void resume();
  void check_identity(const State& saved) const;
  void save_checkpoint(bool async);
  void complete_checkpoint();
  /// Forward, backward and optimizer of each objective; returns the losses.
  std::vector<double> train_step(Batches& batches);
  /// Adds the gradients of a batch, the last one of the step or an earlier one; returns the loss.
  double add_gradients(Objective& objective, const data::Batch& batch, bool is_last);
  void optimizer_step(Objective& objective);
  void end_step(const std::vector<double>& losses, const std::function<Evaluation()>& evaluate);
  /// "" if there is one objective, else its name and a space.
  std::string prefix(const Objective& objective) const;
  std::vector<std::string> loss_texts() const;  ///< "loss", or "critic loss", "generator loss"
  /// Number of steps that follow step `step`.
  int64_t remaining_steps(int64_t step) const;
  /// The smallest and the largest `value` of all ranks. Collective.
  std::pair<int64_t, int64_t> smallest_and_largest(int64_t value) const;
  void broadcast_buffers();
  /// Whole parameters for what ranks do alone, or with different numbers of batches. Collective.
  std::vector<HookHandle> gather_parameters();
  void exclude_step();
  void evaluate_model(const std::function<Evaluation()>& evaluate);
  /// Merges the histories of the ranks and writes charts and events.
  void report();
  void write_chart(const std::string& path, const Plot& plot);
  void add_events();
  void end_trace();
  void finish();

  distributed::Context& ctx_;
  const TrainerOptions options_;
  const TrainerComponents components_;
  const bool is_rank0_;
  const int64_t batch_size_;
  const int64_t steps_per_epoch_;
  const int64_t items_per_step_;
  const OutputPaths paths_;
  std::vector<Objective> objectives_;
  std::unique_ptr<LockFile> lock_;  ///< of `out`, on rank 0
  std::unique_ptr<io::Checkpointer> checkpointer_;
  Progress progress_;
  History history_;
  std::unique_ptr<io::EventFile> events_;
  int64_t total_;            ///< number of steps at the end of the training
  int64_t epochs_ = 0;       ///< number of completed epochs
  int64_t num_batches_ = 0;  ///< of the last step: `accumulate`, or fewer at the end of an epoch
  bool tracing_ = false;
  bool warned_ = false;     ///< that charts cannot be written
  int64_t first_step_ = 0;  ///< number of steps before this process started
  /// Number of steps that the training before this process would have taken with this number of ranks and this data.
  int64_t first_position_ = 0;
  int64_t saved_step_ = -1;  ///< step of the newest complete checkpoint
  int64_t begun_step_ = -1;  ///< step of the checkpoint that is being written
  int64_t events_step_ = 0;  ///< last step whose events are written
};

Trainer::Impl::Impl(distributed::Context& ctx, TrainerOptions options, TrainerComponents components)
    : ctx_(ctx),
      options_(checked(std::move(options))),
      components_(std::move(components)),
      is_rank0_(ctx.rank() == 0),
      batch_size_(components_.loader.options().batch_size),
      steps_per_epoch_(ceil_div(components_.loader.size(), options_.accumulate)),
      items_per_step_(options_.items_per_sample * batch_size_ * options_.accumulate * ctx.world_size()),
      paths_(options_),
      objectives_(make_objectives(options_, components_, ctx.group())),
      progress_({.enabled = is_rank0_ && options_.verbose,
                 .total_steps = options_.total_steps(components_.loader.size()),
                 .items_per_step = items_per_step_,
                 .items = options_.items,
                 .steps_per_epoch = steps_per_epoch_,
                 .log_every = options_.log_every,
                 .losses = loss_texts()}),
      history_(names_of(objectives_)),
      total_(options_.total_steps(components_.loader.size())) {
  TANDEM_CHECK(ValueError, components_.loader.size() > 0, options_.name,
               ": not enough data for one batch: ", components_.loader.dataset().size(), " samples over ",
               format_count(ctx.world_size(), "rank"), " are ", components_.loader.sampler().size(),
               " per rank, fewer than batch_size ", batch_size_);
  if (is_rank0_) lock_ = lock_outputs(options_, components_.model.state_dict().tensors());
  // If rank 0 has thrown, this fails on all ranks.
  const auto [fewest, most] = smallest_and_largest(steps_per_epoch_);
  TANDEM_CHECK(ValueError, fewest == most, options_.name, ": the ranks have from ", fewest, " to ", most,
               " steps per epoch, expected equally many; distribute the data by a DistributedSampler");
  const std::string unshared = unshared_folder(paths_.checkpoints, *ctx_.group());
  if (unshared.empty()) return;
  TANDEM_CHECK(IoError, options_.save_every == 0 && !options_.resume, options_.name, ": ", unshared,
               "; training is not started\n  choose an out on a file system that all hosts share");
  if (is_rank0_) log(LogLevel::kWarning, options_.name, ": ", unshared, "; a signal will not save a checkpoint");
}

std::string Trainer::Impl::prefix(const Objective& objective) const {
  return objectives_.size() == 1 ? "" : objective.name + " ";
}

std::vector<std::string> Trainer::Impl::loss_texts() const {
  std::vector<std::string> texts;
  for (const Objective& objective : objectives_) texts.push_back(prefix(objective) + "loss");
  return texts;
}

void Trainer::Impl::broadcast_buffers() {
  for (Objective& objective : objectives_) objective.reducer.broadcast_buffers();
}

std::vector<HookHandle> Trainer::Impl::gather_parameters() {
  std::vector<HookHandle> handles;
  for (Objective& objective : objectives_) handles.push_back(objective.reducer.gathered());
  return handles;
}

void Trainer::Impl::exclude_step() {
  for (Objective& objective : objectives_) objective.reducer.exclude_step();
}

void Trainer::Impl::fit(const std::function<Tensor(const data::Batch&)>& loss,
                        const std::function<Evaluation()>& evaluate) {
  objectives_[0].loss = loss;
  start();
  Batches batches(components_.loader);
  while (step() < total_ && !ctx_.should_stop()) end_step(train_step(batches), evaluate);
  finish();
}

void Trainer::Impl::start() {
  const std::string times = options_.accumulate > 1 ? str(options_.accumulate, " times ") : "";
  note(str("batch ", times, batch_size_, " per rank, ", options_.accumulate * batch_size_ * ctx_.world_size(),
           " over all ranks; ", format_count(total_, "step")));
  if (options_.resume) {
    resume();
  } else if (path_exists(options_.name.c_str(), paths_.checkpoints + "/latest")) {
    throw ValueError(str(options_.name, ": '", paths_.checkpoints,
                         "' contains checkpoints; continue from them with resume, or choose another out"));
  }
  for (Objective& objective : objectives_) objective.reported_step = objective.reducer.hook_report().step;
  tracing_ = !options_.trace.empty();
  if (tracing_) start_trace();
}

std::vector<std::pair<std::string, std::string>> Trainer::Impl::identity() const {
  std::vector<std::pair<std::string, std::string>> all = options_.identity;
  all.emplace_back("batch_size", str(batch_size_));
  all.emplace_back("accumulate", str(options_.accumulate));
  all.emplace_back("max_norm", str(options_.max_norm));
  all.emplace_back("amp", options_.amp ? str(*options_.amp) : "none");
  return all;
}

void Trainer::Impl::check_identity(const State& saved) const {
  std::vector<std::pair<std::string, std::string>> differences;
  size_t width = 0;
  for (const auto& [name, current] : identity()) {
    const auto* value = saved.find(name);
    const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    if (text != nullptr && *text == current) continue;
    differences.emplace_back(name, str("checkpoint: ", text != nullptr ? *text : "missing", ", now: ", current));
    width = std::max(width, name.size());
  }
  if (differences.empty()) return;
  std::string text =
      str(options_.name, ": the checkpoints in '", paths_.checkpoints, "' were saved with other settings");
  for (const auto& [name, what] : differences) {
    text += "\n  " + name + std::string(width + 2 - name.size(), ' ') + what;
  }
  throw ValueError(text + "\n  use the checkpoint's settings, or choose another out");
}

io::Checkpointer& Trainer::Impl::checkpointer() {
  if (checkpointer_ == nullptr) {
    io::CheckpointOptions options;
    options.rank = ctx_.rank();
    options.world_size = ctx_.world_size();
    options.barrier = [group = ctx_.group()] { group->barrier(); };
    checkpointer_ = std::make_unique<io::Checkpointer>(paths_.checkpoints, std::move(options));
  }
  return *checkpointer_;
}

void Trainer::Impl::resume() {
  const auto loaded = checkpointer().load_latest();
  // Ranks that resume from different steps would train with different weights.
  const auto [oldest, newest] = smallest_and_largest(loaded ? loaded->step : int64_t{-1});
  TANDEM_CHECK(ValueError, oldest == newest, options_.name, ": ranks found different checkpoints in '",
               paths_.checkpoints, "': of steps ", oldest, " and ", newest, "; all ranks must see the same folder");
  if (!loaded) {
    note(str("no checkpoint in ", paths_.checkpoints, "; training starts from the beginning"));
    return;
  }
  const State& rank = loaded->state.rank;
  const State& shared = loaded->state.shared;
  check_identity(rank.get<State>("identity"));
  components_.loader.sampler().load_state_dict(rank.get<State>("sampler"));
  const bool has_position = rank.find("position") != nullptr;  // older checkpoints have none
  epochs_ = rank.get<int64_t>(has_position ? "position.epochs" : "sampler.epoch");
  const int64_t saved_position = has_position ? rank.get<int64_t>("position.steps") : loaded->step;
  const int64_t left = remaining_steps(loaded->step);
  first_position_ = options_.total_steps(components_.loader.size()) - left;
  if (components_.loader.remaining() == 0) ++epochs_;  // with this number of ranks, the rest has no batch
  total_ = loaded->step + left;
  components_.model.load_state_dict(loaded->state.model);
  const int64_t shift = first_position_ - saved_position;
  load_objectives(objectives_, *loaded, ctx_.world_size(), shift);
  if (components_.load_state_dict) components_.load_state_dict(shared.get<State>("components"));
  default_generator(ctx_.device()).load_state_dict(rank.get<State>("generator"));
  history_.load_state_dict(rank.get<State>("history"),
                           static_cast<double>(ctx_.world_size()) / static_cast<double>(loaded->world_size));
  progress_.start_at(loaded->step, first_position_);
  first_step_ = saved_step_ = events_step_ = loaded->step;
  note(str("resumed from ", paths_.checkpoints, ": ", format_count(loaded->step, "step"), " of ", total_, " done"));
  if (loaded->world_size != ctx_.world_size()) {
    note(str("the checkpoint was saved by ", format_count(loaded->world_size, "rank"), ": with ", ctx_.world_size(),
             " the results are not bit-identical to an uninterrupted run"));
  }
  if (shift != 0) {
    note(str("an epoch now has ", format_count(steps_per_epoch_, "step"), ": schedules continue at step ",
             first_position_, " of ", first_position_ + left));
  }
}

int64_t Trainer::Impl::remaining_steps(int64_t step) const {
  const int64_t of_this_epoch = ceil_div(components_.loader.remaining(), options_.accumulate);
  const int64_t left = std::max<int64_t>(0, (options_.epochs - epochs_ - 1) * steps_per_epoch_ + of_this_epoch);
  return options_.max_steps > 0 ? std::min(left, std::max<int64_t>(0, options_.max_steps - step)) : left;
}

std::pair<int64_t, int64_t> Trainer::Impl::smallest_and_largest(int64_t value) const {
  const Tensor range = tensor({-value, value});
  ctx_.group()->all_reduce(range, distributed::ReduceOp::kMax);
  const auto values = range.to_vector<int64_t>();
  return {-values[0], values[1]};
}

std::vector<double> Trainer::Impl::train_step(Batches& batches) {
  const TraceSpan span("step", "step");
  std::vector<data::Batch> same;  // the batches of this step, for the further objectives
  std::vector<double> losses;
  num_batches_ = options_.accumulate;
  for (Objective& objective : objectives_) {
    objective.optimizer.zero_grad();
    double sum = 0;
    for (int64_t i = 0; i < num_batches_; ++i) {
      const bool is_first = losses.empty();
      const data::Batch& batch = is_first ? batches.next() : same[static_cast<size_t>(i)];
      if (is_first && i == 0) num_batches_ = std::min(num_batches_, 1 + components_.loader.remaining());
      sum += add_gradients(objective, batch, i + 1 == num_batches_) / static_cast<double>(num_batches_);
      if (is_first && objectives_.size() > 1) same.push_back(batch);
    }
    losses.push_back(sum);
    optimizer_step(objective);
    if (objective.schedule != nullptr) objective.schedule->step();
  }
  if (options_.after_step) options_.after_step();
  return losses;
}

double Trainer::Impl::add_gradients(Objective& objective, const data::Batch& batch, bool is_last) {
  Tensor value;
  {
    const Amp amp(options_.amp);
    value = objective.loss(batch);
  }
  // Only the last batch of a step averages gradients, unless whole gradients would need the memory.
  const bool averages = is_last || objective.reducer.shard() >= distributed::Shard::kGradients;
  const HookHandle no_sync = averages ? HookHandle() : objective.reducer.no_sync();
  const Tensor scaled = num_batches_ == 1 ? value : value * (1 / static_cast<double>(num_batches_));
  objective.scaler ? objective.scaler->backward(scaled) : scaled.backward();
  return value.item();
}

void Trainer::Impl::optimizer_step(Objective& objective) {
  optim::Optimizer& optimizer = objective.optimizer;
  std::optional<optim::GradScaler>& scaler = objective.scaler;
  if (options_.max_norm > 0) {
    if (scaler) scaler->unscale_(optimizer);
    optim::clip_grad_norm_(optimizer.parameters(), options_.max_norm);
  }
  if (!scaler) return optimizer.step();
  const bool stepped = scaler->step(optimizer);
  scaler->update();
  if (stepped) return;
  note(str(prefix(objective), "step ", step() + 1, " skipped: gradients are not finite; loss scale reduced to ",
           scaler->get_scale()));
}

void Trainer::Impl::end_step(const std::vector<double>& losses, const std::function<Evaluation()>& evaluate) {
  progress_.step(losses);
  for (size_t i = 0; i < losses.size(); ++i) {
    Objective& objective = objectives_[i];
    if (!std::isfinite(losses[i])) {
      throw ValueError(str(options_.name, ": the ", prefix(objective), "loss of step ", step(),
                           " is not finite: the training diverged; try a smaller learning rate than ",
                           objective.optimizer.lr()));
    }
    if (const auto hooks = objective.reducer.hook_report(); hooks.step != objective.reported_step) {
      objective.reported_step = hooks.step;
      note(str(prefix(objective), "gradients, ", to_string(hooks)));
    }
  }
  // As if the step had all its batches, because rates are items_per_step_ over this duration.
  history_.add_step(
      losses, progress_.step_seconds() * static_cast<double>(options_.accumulate) / static_cast<double>(num_batches_));
  const bool ends_epoch = components_.loader.remaining() == 0;
  if (ends_epoch) ++epochs_;
  if (tracing_ && step() - first_step_ == kTracedSteps) end_trace();
  if (ctx_.should_stop()) return;  // finish() saves
  const bool is_due = options_.evaluate_every == 0 ? ends_epoch : step() % options_.evaluate_every == 0;
  if (is_due || step() == total_) evaluate_model(evaluate);
  if (begun_step_ >= 0 && smallest_and_largest(checkpointer().is_written()).first == 1) complete_checkpoint();
  if (options_.save_every > 0 && step() % options_.save_every == 0) save_checkpoint(options_.async_save);
}

void Trainer::Impl::evaluate_model(const std::function<Evaluation()>& evaluate) {
  const int64_t epoch = epochs_ + (components_.loader.remaining() > 0 ? 1 : 0);
  std::string text = options_.evaluate_every == 0 ? str("epoch ", epoch) : str("step ", step());
  text += ": " + progress_.losses();
  if (evaluate) {
    broadcast_buffers();
    Evaluation result;
    {
      const nn::TrainingModes evaluation(components_.model, false);
      const NoGradGuard no_grad;
      const Amp amp(options_.amp);
      const std::vector<HookHandle> whole = gather_parameters();
      result = evaluate();
    }
    if (!result.empty()) text += ", " + describe(result, options_.evaluation_set);
    history_.add_evaluation(step(), std::move(result));
  }
  report();
  exclude_step();
  note(text);
}

void Trainer::Impl::report() {
  history_.merge(*ctx_.group());
  if (!is_rank0_) return;
  add_events();
  write_chart(paths_.loss_chart, loss_plot());
  write_chart(paths_.throughput_chart, history_.throughput_plot(options_.title, options_.items, items_per_step_));
}

void Trainer::Impl::write_chart(const std::string& path, const Plot& plot) {
  try {
    write_file(options_.name.c_str(), path, to_svg(plot));
  } catch (const IoError& error) {
    if (!std::exchange(warned_, true)) log(LogLevel::kWarning, error.what(), "; training continues");
  }
}

void Trainer::Impl::add_events() {
  if (events_ == nullptr) {
    events_ = std::make_unique<io::EventFile>(paths_.events);
    if (first_step_ > 0) events_->resume(first_step_ + 1);
  }
  std::vector<std::vector<double>> losses;
  for (size_t j = 0; j < objectives_.size(); ++j) losses.push_back(history_.losses(j));
  while (events_step_ < step()) {
    const auto i = static_cast<size_t>(events_step_++);
    for (size_t j = 0; j < losses.size(); ++j) {
      events_->add_scalar("loss/" + objectives_[j].name, losses[j][i], events_step_);
    }
    const double seconds = history_.seconds()[i];
    if (!std::isnan(seconds)) {
      events_->add_scalar(options_.items + " per second", static_cast<double>(items_per_step_) / seconds, events_step_);
    }
  }
  for (const Objective& objective : objectives_) {
    events_->add_scalar(prefix(objective) + "learning rate", objective.optimizer.lr(), step());
  }
  for (const auto& [name, value] : history_.evaluation(step())) {
    events_->add_scalar(name + "/" + options_.evaluation_set, value, step());
  }
}

void Trainer::Impl::complete_checkpoint() {
  if (begun_step_ < 0) return;
  const int64_t step = std::exchange(begun_step_, -1);
  if (checkpointer().wait()) saved_step_ = step;
  exclude_step();
}

void Trainer::Impl::save_checkpoint(bool async) {
  complete_checkpoint();
  broadcast_buffers();
  history_.merge(*ctx_.group());
  io::CheckpointState state;
  state.model = components_.model.state_dict();
  save_objectives(objectives_, state.shared, state.rank);
  if (components_.state_dict) state.shared.set("components", components_.state_dict());
  State settings;
  for (const auto& [name, value] : identity()) settings.set(name, value);
  state.rank.set("identity", settings);
  state.rank.set("sampler", components_.loader.sampler().state_dict());
  state.rank.set("position.epochs", epochs_);
  state.rank.set("position.steps", first_position_ + step() - first_step_);
  state.rank.set("generator", default_generator(ctx_.device()).state_dict());
  state.rank.set("history", history_.state_dict());
  if (async) {
    checkpointer().async_save(step(), state);
    begun_step_ = step();
  } else if (checkpointer().save(step(), state)) {
    saved_step_ = step();
  }
  exclude_step();
}

void Trainer::Impl::end_trace() {
  tracing_ = false;
  const auto events = distributed::gather_trace(*ctx_.group());
  exclude_step();
  if (!is_rank0_) return;
  try {
    profile::write_chrome_trace(paths_.trace, events);
    note(str("trace of the first steps: ", paths_.trace, " (open it at ui.perfetto.dev)"));
  } catch (const IoError& error) {
    log(LogLevel::kWarning, error.what(), "; training continues");
  }
}

void Trainer::Impl::finish() {
  if (tracing_) end_trace();  // the training had fewer than kTracedSteps steps
  const bool stopped = ctx_.should_stop();
  complete_checkpoint();
  const bool is_due = step() != saved_step_ && (options_.save_every > 0 || stopped);
  if (is_due) save_checkpoint(false);
  if (stopped) {
    report();  // without a signal, the evaluation after the last step has called it
    note(str("stopped by a signal after step ", step(), " of ", total_));
    if (saved_step_ == step()) note("continue with resume");
  } else if (const Evaluation result = history_.evaluation(step()); !result.empty()) {
    note(str(describe(result, options_.evaluation_set), " after ", format_count(step(), "step")));
  }
  for (Objective& objective : objectives_) {
    const distributed::OverlapReport overlap = objective.reducer.report();
    if (overlap.steps > 0) note(prefix(objective) + distributed::to_string(overlap));
  }
  broadcast_buffers();
  const std::vector<HookHandle> whole = gather_parameters();
  if (!is_rank0_) return;
  save_weights(options_.name, paths_.model, components_.model.state_dict().tensors());
  note(str("saved ", paths_.model));
  TANDEM_CHECK(IoError, !is_due || saved_step_ == step(), options_.name, ": the checkpoint of the last step, ", step(),
               ", could not be saved in '", paths_.checkpoints, "'; the trained weights are saved to '", paths_.model,
               "'");
  lock_.reset();
}

Trainer::Trainer(distributed::Context& ctx, TrainerOptions options, TrainerComponents components)
    : impl_(std::make_unique<Impl>(ctx, std::move(options), std::move(components))) {}

Trainer::~Trainer() = default;

void Trainer::fit(const std::function<Tensor(const data::Batch& batch)>& loss,
                  const std::function<Evaluation()>& evaluate) {
  impl_->fit(loss, evaluate);
}

void Trainer::note(const std::string& text) { impl_->note(text); }

int64_t Trainer::step() const { return impl_->step(); }

Plot Trainer::loss_plot() const { return impl_->loss_plot(); }

}}}  // namespace tandem::v0::train
