// The training loop: steps, mixed precision, clipping, evaluation, checkpoints and resuming, charts, event files,
// traces and printed output. Optional: docs/training.md shows the same loop written out.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

namespace data {
struct Batch;
class DataLoader;
}  // namespace data
namespace distributed {
class Context;
class GradientReducer;
}  // namespace distributed
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
class Schedule;
}  // namespace optim

namespace train {

struct Plot;

/// Results of an evaluation by name, equal on all ranks: {{"loss", 0.31}, {"accuracy", 0.93}}. "loss" is drawn in the
/// chart of losses; values whose name ends with "accuracy" are printed in percent. Names contain no '.'.
using Evaluation = std::vector<std::pair<std::string, double>>;

/// Options of Trainer.
struct TrainerOptions {
  std::string name = "Trainer";               ///< error texts begin with it
  std::string title = "training";             ///< of the charts
  std::string items = "samples";              ///< unit of the rate: "images"
  int64_t items_per_sample = 1;               ///< for the rate: tokens of a text
  std::string evaluation_set = "validation";  ///< label of the results of the evaluation: "validation loss"
  std::string loss_name = "training";         ///< label of the loss in charts and, with `further` losses, in lines

  int64_t epochs = 1;     ///< passes over the training data, including those before a resume
  int64_t max_steps = 0;  ///< largest number of optimizer steps; 0: no limit
  /// Batches per optimizer step, whose gradients are averaged. The last step of an epoch has the batches that remain.
  int64_t accumulate = 1;
  double max_norm = 0;            ///< argument of optim::clip_grad_norm_; 0: gradients are not clipped
  std::optional<DType> amp = {};  ///< dtype of Autocast, kBFloat16, or kFloat16 with a GradScaler; nullopt: no autocast
  int64_t evaluate_every = 0;     ///< steps; 0: after each epoch. The last step is always evaluated
  /// Called after each step of optimizer and schedule, for example to average weights.
  std::function<void()> after_step = {};

  std::string out = "results";  ///< folder of all outputs, created if it does not exist
  /// Further output folders of the program inside `out`, which are also checked before the first step.
  std::vector<std::string> folders = {};
  int64_t save_every = 0;  ///< steps between checkpoints; 0: only when a signal stops the training
  /// Write the files of save_every while training goes on (Checkpointer::async_save). A checkpoint is complete after
  /// the first step at whose end all ranks have written their files, at the latest when the next one begins.
  bool async_save = false;
  bool resume = false;  ///< continue from the newest checkpoint in `out`, if it exists
  /// (name, value) of settings that must be equal in a resumed training, such as the learning rate; Trainer adds
  /// batch_size, accumulate, max_norm and amp.
  std::vector<std::pair<std::string, std::string>> identity = {};
  bool verbose = true;     ///< print progress and results on rank 0
  int64_t log_every = 0;   ///< without a terminal, steps between progress lines; 0: a line every few seconds
  std::string trace = {};  ///< file for a trace of the first 30 steps of all ranks; empty: no trace

  /// Number of optimizer steps of a complete training on this number of ranks, for schedules: at least 1.
  /// `batches_per_epoch`: of one rank, DataLoader::size().
  TANDEM_API int64_t total_steps(int64_t batches_per_epoch) const;
};

/// A further loss of each step with its optimizer, for models with several optimizers such as a GAN.
struct TrainerObjective {
  std::string name;  ///< label of the loss: "generator"; unique, without '.'
  /// As the argument `loss` of Trainer::fit.
  std::function<Tensor(const data::Batch& batch)> loss;
  distributed::GradientReducer& reducer;  ///< of the parameters that this loss trains
  optim::Optimizer& optimizer;            ///< of these parameters
  optim::Schedule* schedule = nullptr;    ///< [optional] stepped after each step of the optimizer
};

/// The objects that a Trainer trains and saves in checkpoints. They must outlive the Trainer.
struct TrainerComponents {
  nn::Module& model;                       ///< on the rank's device; contains all networks if there are several
  distributed::GradientReducer& reducer;   ///< of the model's DistributedDataParallel
  optim::Optimizer& optimizer;             ///< of the model's parameters
  optim::Schedule* schedule = nullptr;     ///< [optional] stepped after each step of the optimizer
  data::DataLoader& loader;                ///< batches of this rank; its sampler's position is saved
  std::function<State()> state_dict = {};  ///< [optional] more state for checkpoints, equal on all ranks
  std::function<void(const State&)> load_state_dict = {};  ///< [optional] restores the result of state_dict
  /// [optional] Losses that follow the argument of Trainer::fit in each step, in this order.
  std::vector<TrainerObjective> further = {};
};

/// Trains a model on all ranks of a job.
///
///     train::Trainer trainer(ctx, {.epochs = 5, .out = "results"},
///                            {.model = model, .reducer = ddp.reducer(), .optimizer = sgd, .loader = loader});
///     trainer.fit([&](const data::Batch& batch) { return cross_entropy(ddp(batch.input), batch.target); },
///                 [&] { return evaluate(model, ctx); });
///
/// Writes model.safetensors, loss.svg, throughput.svg and events/ (TensorBoard) to the folder `out`, and checkpoints/
/// with save_every or when a signal stops the training. A checkpoint has all state on which later steps depend:
/// weights, buffers, optimizer, schedule, loss scale, data position, and each rank's random generator and communication
/// hooks. So a training that was killed and resumed ends with the same bytes as an uninterrupted training on the same
/// number of ranks.
///
/// With another number of ranks or, after the end of an epoch, another dataset size, a resumed training trains the rest
/// of its epochs in steps of another size. Its schedules have the options that the program has given them, and continue
/// at the step that this size implies, so that a schedule over total_steps() ends with the training. Within an epoch
/// the sampler throws StateError for another dataset size.
///
/// With `further` objectives, a step consists of one update per loss on the same batches: first the argument of fit()
/// updates `optimizer`, then each further loss updates its own optimizer. A backward must reach only the parameters of
/// its own reducer (docs/adversarial_training.md).
///
/// All outputs are checked before the first step, and `out` is locked until fit() returns. Output that cannot be
/// written later causes a warning, and training continues. fit() throws at the end if the weights cannot be written,
/// which are then saved elsewhere, or if the last checkpoint, of save_every or of a signal, cannot be saved. Every rank
/// creates a Trainer; construction and fit() are collective. Only rank 0 prints and writes, except for checkpoints, to
/// which every rank contributes. Not thread-safe.
class TANDEM_API Trainer {
 public:
  /// Creates the folder `out` and checks that all outputs can be written: otherwise throws IoError on rank 0 and
  /// CommError on the other ranks; StateError instead of IoError if another Trainer uses `out`. Throws IoError on all
  /// ranks if not all of them see the checkpoint folder of rank 0 and can write to it, with save_every or resume;
  /// otherwise logs a warning. Throws ValueError for options that are out of range, if the loader has no batch, if the
  /// ranks have different numbers of steps per epoch, or if names of losses are empty, contain a '.' or are equal.
  Trainer(distributed::Context& ctx, TrainerOptions options, TrainerComponents components);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains until all steps are made or a signal requests to stop, then saves the weights. Call it once.
  ///
  /// `loss`: called for each batch, under autocast with `amp`; returns the scalar loss, a mean over the batch. fit()
  /// adds the gradients of the batches of a step, divided by their number, and averages them over the
  /// ranks. With amp kFloat16, if the gradients of any rank are not finite, all ranks skip the optimizer's step, and
  /// the loss scale is reduced. `evaluate`: [optional] called on all ranks without recording gradients, in evaluation
  /// mode, under autocast with `amp`, after the buffers of rank 0 were broadcast.
  ///
  /// Throws ValueError if a loss is not finite; if `out` has checkpoints and `resume` is false; or if the checkpoints
  /// were saved with another `identity`, listing the differences. Throws IoError on rank 0 if the weights or the last
  /// checkpoint could not be written to `out`.
  void fit(const std::function<Tensor(const data::Batch& batch)>& loss,
           const std::function<Evaluation()>& evaluate = {});
  /// Refuses other functions, with a message of the compiler.
  template <class F, class... Evaluate>
  requires(!std::convertible_to<F, std::function<Tensor(const data::Batch&)>>) void fit(const F&, const Evaluate&...) {
    static_assert(std::is_void_v<F>,
                  "fit: loss is not a function of a batch that returns a Tensor: [&](const data::Batch& batch) { .. }");
  }

  /// Prints a line on rank 0, without disturbing the progress line.
  void note(const std::string& text);
  /// The number of completed optimizer steps, including those before a resume.
  int64_t step() const;
  /// The chart of losses so far, as in loss.svg. Include <tandem/train/plot.h> to use it.
  Plot loss_plot() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace train

}}  // namespace tandem::v0
