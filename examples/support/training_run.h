// What the examples' training loops share: steps and their count, validation, checkpoints and going on from them, charts,
// event files, traces, and what is printed.
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

/// What a training consists of: what checkpoints save.  All must outlive the run.
struct TrainedParts {
  tandem::nn::Module& model;
  tandem::distributed::GradientReducer& reducer;
  tandem::optim::Optimizer& optimizer;
  tandem::optim::Schedule* schedule = nullptr;
  tandem::data::Sampler& sampler;
};

struct TrainingRunOptions {
  std::string name;                       ///< of the example: begins error texts
  std::string title;                      ///< of the charts
  std::string items;                      ///< what the rate counts: "images"
  int64_t items_per_batch = 1;            ///< of one rank
  int64_t batches_per_epoch = 1;          ///< of one rank
  int64_t validate_every = 0;             ///< steps; 0 = after each epoch
  std::string validation = "validation";  ///< what a validation is called: "validation loss"
  /// Flags and facts besides the common ones that a checkpoint must agree in, as they are shown to the user.
  std::vector<std::pair<std::string, std::string>> identity;
};

/// Steps that the flags ask for: --epochs of `batches_per_epoch` batches, --accumulate of them a step, at most --max-steps.
int64_t total_steps(const TrainingFlags& flags, int64_t batches_per_epoch);

/// Throws ValueError unless a rank's share of the training data makes a batch.  `name` is the example's, `items` what the
/// data set holds: "training images".
void check_batches(const std::string& name, const tandem::data::Dataset& train, const std::string& items,
                   const tandem::data::DataLoader& loader, const tandem::data::Sampler& sampler,
                   const tandem::distributed::Context& ctx, const TrainingFlags& flags);

/// Products and convolutions in what --amp says while it lives; losses and norms stay in float32.
class Amp {
 public:
  explicit Amp(const TrainingFlags& flags) {
    if (flags.amp != "none") autocast_.emplace(flags.amp == "float16" ? tandem::kFloat16 : tandem::kBFloat16);
  }

 private:
  std::optional<tandem::Autocast> autocast_;
};

/// What --compress and --hook-report-every ask of DistributedDataParallel.
tandem::distributed::ReducerOptions reducer_options(const TrainingFlags& flags);

/// Batches without end: the loader's epochs one after the other.  The loader's must not be empty.
class Batches {
 public:
  explicit Batches(tandem::data::DataLoader& loader) : loader_(loader) {}
  /// Valid until the next call.
  tandem::data::Batch& next();

 private:
  tandem::data::DataLoader& loader_;
  std::optional<tandem::data::DataLoader::Iterator> position_;
};

/// One training from the flags to the saved weights.  Every rank makes one, and calls it alike: all members but note() and
/// step() are collective.
///
///     TrainingRun run(ctx, flags, options, parts);
///     run.start();                                   // goes on from a checkpoint if --resume says so
///     while (run.goes_on()) {
///       ...                                          // forward, and run.backward(loss) for each batch
///       run.optimizer_step();
///       schedule.step();
///       run.end_step([&] { return evaluate(...); });
///     }
///     run.finish();
///
/// Below --out it writes model.safetensors, loss.svg, throughput.svg, events/ for TensorBoard, and with --save-every or at
/// an interrupt checkpoints/.  A checkpoint holds everything that the steps after it depend on: weights, buffers, optimizer,
/// schedule, loss scale, data position, random stream and gradient hooks of each rank; so a training that was killed and resumed
/// ends in the same bytes as one that was not.
///
/// All of these are tried before the first step.  What cannot be written later is a warning, and the training goes on; weights that
/// cannot be written at the end are saved to another place, and finish() throws.
class TrainingRun {
 public:
  /// Makes the folders that the flags name and tries to write there (try_outputs).  Throws IoError on rank 0 where that fails, and
  /// CommError on the others.
  TrainingRun(tandem::distributed::Context& ctx, const TrainingFlags& flags, TrainingRunOptions options,
              TrainedParts parts);

  /// Before the first step: says how large batches are, goes on from a checkpoint if --resume says so, starts the trace.
  ///
  /// Throws ValueError where --out holds checkpoints and --resume is missing, or where they are of a training with other
  /// flags, listing the differences.
  void start();
  /// Whether there is another step to make: there is, unless all are made or a signal arrived.
  bool goes_on();
  /// d loss / --accumulate, added to the gradients; with --amp float16 times the loss scale.
  void backward(const tandem::Tensor& loss);
  /// For whoever looks at the gradients before the step: divides them by the loss scale, if there is one.
  void unscale_gradients();
  /// The optimizer's step.  With --amp float16 all ranks leave it out where the gradients of one are not finite, say so, and
  /// make the loss scale smaller.
  void optimizer_step();
  /// Ends a step.  Where one is due, validates, and saves a checkpoint.  Throws ValueError if the loss is no finite number.
  void end_step(const std::function<Validation()>& validate);
  /// Saves what is to be saved and says how it went.  Throws IoError on rank 0 if the weights are not where --out says
  /// (save_weights).
  void finish();

  /// A line on rank 0's terminal.
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
  /// Makes metrics whole and writes charts and events.
  void report();
  void write_chart(const std::string& path, const Plot& plot);
  void add_events();
  void end_trace();

  tandem::distributed::Context& ctx_;
  const TrainingFlags& flags_;
  TrainingRunOptions options_;
  TrainedParts parts_;
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
  double step_loss_ = 0;     ///< mean of the running step's batches
  int64_t first_step_ = 0;   ///< after which this process began
  int64_t saved_step_ = -1;  ///< of the newest checkpoint
  int64_t events_step_ = 0;  ///< whose events are written
};

}  // namespace examples
