// The training loop of the examples: number of steps, validation, checkpoints and resuming, charts, event files, traces
// and printed output.
#pragma once

#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/metrics.h>
#include <tandem/examples/support/outputs.h>
#include <tandem/examples/support/progress.h>
#include <tandem/tandem.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// The objects whose state checkpoints save. They must outlive the TrainingRun.
struct TrainingComponents {
  tandem::nn::Module& model;
  tandem::distributed::GradientReducer& reducer;
  tandem::optim::Optimizer& optimizer;
  tandem::optim::Schedule* schedule = nullptr;
  tandem::data::Sampler& sampler;
};

struct TrainingRunOptions {
  std::string name;                       ///< of the example; error texts begin with it
  std::string title;                      ///< of the charts
  std::string items;                      ///< unit of the rate: "images"
  int64_t items_per_batch = 1;            ///< of one rank
  int64_t batches_per_epoch = 1;          ///< of one rank
  int64_t validate_every = 0;             ///< steps; 0 = after each epoch
  std::string validation = "validation";  ///< label of the evaluation set: "validation loss", "test loss"
  /// (name, value) of the example's own flags and properties that must be the same when a run is resumed.
  std::vector<std::pair<std::string, std::string>> identity;
};

/// Number of optimizer steps: --epochs times `batches_per_epoch`, divided by --accumulate, at most --max-steps.
int64_t total_steps(const TrainingFlags& flags, int64_t batches_per_epoch);

/// Throws ValueError if a rank's part of the training data is smaller than a batch. `name`: of the example. `items`:
/// for the error text, "training images".
void check_batches(const std::string& name, const tandem::data::Dataset& train, const std::string& items,
                   const tandem::data::DataLoader& loader, const tandem::data::Sampler& sampler,
                   const tandem::distributed::Context& ctx, const TrainingFlags& flags);

/// Autocast according to --amp while in scope.
class Amp {
 public:
  explicit Amp(const TrainingFlags& flags) {
    if (flags.amp != "none") autocast_.emplace(flags.amp == "float16" ? tandem::kFloat16 : tandem::kBFloat16);
  }

 private:
  std::optional<tandem::Autocast> autocast_;
};

/// Options of DistributedDataParallel according to --compress and --hook-report-every.
tandem::distributed::ReducerOptions reducer_options(const TrainingFlags& flags);

/// An endless sequence of batches, epoch after epoch. The loader must not be empty.
class Batches {
 public:
  explicit Batches(tandem::data::DataLoader& loader) : loader_(loader) {}
  /// The next batch; the reference is valid until the next call.
  tandem::data::Batch& next();

 private:
  tandem::data::DataLoader& loader_;
  std::optional<tandem::data::DataLoader::Iterator> position_;
};

/// One training, from the flags to the saved weights. Every rank creates one. All members except note() and step() are
/// collective: all ranks must call them in the same order.
///
///     TrainingRun run(ctx, flags, options, components);
///     run.start();                                   // resumes from a checkpoint with --resume
///     while (run.has_next_step()) {
///       ...                                          // forward, and run.backward(loss) for each batch
///       run.optimizer_step();
///       schedule.step();
///       run.end_step([&] { return evaluate(...); });
///     }
///     run.finish();
///
/// Writes model.safetensors, loss.svg, throughput.svg, and events/ for TensorBoard to the folder --out, and
/// checkpoints/ with --save-every or when interrupted. A checkpoint contains everything that later steps depend on:
/// weights, buffers, optimizer, schedule, loss scale, data position, and each rank's random generator and communication
/// hooks. So a training that was killed and resumed ends with the same bytes as an uninterrupted one.
///
/// All outputs are checked before the first step. Output that cannot be written later causes a warning, and training
/// continues; if the weights cannot be written at the end, they are saved elsewhere, and finish() throws.
class TrainingRun {
 public:
  /// Creates the output folders and checks all outputs (check_outputs). If that fails, throws IoError on rank 0 and
  /// CommError on the other ranks.
  TrainingRun(tandem::distributed::Context& ctx, const TrainingFlags& flags, TrainingRunOptions options,
              TrainingComponents parts);

  /// Call before the first step: prints the batch sizes, resumes from a checkpoint with --resume, starts the trace.
  ///
  /// Throws ValueError if --out contains checkpoints and --resume is not given, or if they were saved with other flags,
  /// which the error lists.
  void start();
  /// True until all steps are made or a signal requests to stop.
  bool has_next_step();
  /// Adds the gradients of loss / --accumulate, with --amp float16 multiplied by the loss scale.
  void backward(const tandem::Tensor& loss);
  /// Divides the gradients by the loss scale, if there is one. Call before using gradients, for instance to clip them.
  void unscale_gradients();
  /// The optimizer's step. With --amp float16, if the gradients of any rank are not finite, all ranks skip the step,
  /// print a note, and reduce the loss scale.
  void optimizer_step();
  /// Ends a step: validates and saves a checkpoint when they are due. Throws ValueError if the loss is not finite.
  void end_step(const std::function<Validation()>& validate);
  /// Saves the last checkpoint and the weights, and prints the results. Throws IoError on rank 0 if the weights could
  /// not be written to --out (save_weights).
  void finish();

  /// Prints a line on rank 0's terminal.
  void note(const std::string& text) { progress_.note(text); }
  int64_t step() const { return progress_.steps(); }
  bool is_rank0() const { return ctx_.rank() == 0; }

 private:
  std::vector<std::pair<std::string, std::string>> identity() const;
  tandem::io::Checkpointer& checkpointer();
  void resume();
  void check_identity(const tandem::State& saved) const;
  void save_checkpoint();
  void save_model();
  void validate(const std::function<Validation()>& validate);
  /// Merges the metrics of the ranks and writes charts and events.
  void report();
  void write_chart(const std::string& path, const Plot& plot);
  void add_events();
  void end_trace();

  tandem::distributed::Context& ctx_;
  const TrainingFlags& flags_;
  TrainingRunOptions options_;
  TrainingComponents components_;
  int64_t total_;
  int64_t steps_per_epoch_;
  int64_t validate_every_;
  int64_t items_per_step_;
  OutputPaths paths_;
  std::unique_ptr<tandem::io::Checkpointer> checkpointer_;
  std::optional<tandem::optim::GradScaler> scaler_;  ///< with --amp float16
  Progress progress_;
  Metrics metrics_;
  std::unique_ptr<tandem::io::EventFile> events_;
  std::optional<tandem::TraceSpan> span_;
  bool tracing_ = false;
  bool warned_ = false;      ///< that charts cannot be written
  double step_loss_ = 0;     ///< mean loss of the current step's micro-batches so far
  int64_t first_step_ = 0;   ///< number of steps before this process started
  int64_t saved_step_ = -1;  ///< step of the newest checkpoint
  int64_t events_step_ = 0;  ///< last step whose events are written
};

}  // namespace examples
