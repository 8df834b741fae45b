// Averages gradients over the ranks of a group during backward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/hook_handle.h>
#include <tandem/base/macros.h>
#include <tandem/base/module_observer.h>
#include <tandem/base/ref_counted.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/ddp/bucket_plan.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Tensors with their paths in the module.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Handling of parameters that a backward pass did not use on every rank.
enum class UnusedParameters {
  kError,  ///< throw StateError on every rank after the all-reduce, naming parameters and ranks
  kAllow,  ///< unused on all ranks: no gradient; used on some ranks: the mean, other ranks contribute zero
};

/// What the ranks divide among themselves. All levels except kParameters send 2 (N - 1) / N bytes per byte of
/// parameters and step, for N ranks and one backward.
enum class Shard {
  kNone,        ///< nothing: every rank has all of it and takes the same step
  kOptimizer,   ///< the optimizer's state: each rank updates 1 / N of every parameter (ZeRO-1)
  kGradients,   ///< the gradients too; whole ones exist only for a few buckets during backward (ZeRO-2)
  kParameters,  ///< the parameters too; they are gathered unit by unit in forward and backward (ZeRO-3, FSDP)
};

TANDEM_API std::string to_string(Shard shard);  ///< "none", "optimizer", "gradients" or "parameters"

/// Options of GradientReducer and DistributedDataParallel. Must be equal on all ranks.
struct ReducerOptions {
  BucketSizes buckets = {};  ///< target sizes of buckets
  /// What to do with parameters that backward did not reach on every rank.
  UnusedParameters unused = UnusedParameters::kError;
  /// Communication hooks, applied in order. Example: {power_sgd({.rank = 4}), bf16_compress()} sends the factors of
  /// PowerSGD, and the parameters that it does not compress, as bfloat16. Empty: exact all-reduce. Must be equal on
  /// all ranks. A hook object belongs to one reducer.
  CommHooks hooks = {};
  /// k > 0: replay every k-th step without hooks, and with the first hooks of the chain, to measure the error of the
  /// hooks; see GradientReducer::hook_report(). Does not change the training. 0: never.
  int64_t hook_report_every = 0;
  /// See GradientReducer. With kGradients and kParameters there are no hooks.
  Shard shard = Shard::kNone;
  /// With kParameters: paths of the modules that are units, each gathered as a whole when it is called. A parameter
  /// belongs to the innermost unit that contains it, else to the root unit. Empty: each child of every nn::ModuleList.
  std::vector<std::string> units = {};
  /// With kParameters: units remain whole from forward to backward, which sends 2/3 of the bytes for more memory.
  bool keep_after_forward = false;
};

/// Time per step in milliseconds, averaged over `steps`. step = local + exposed + stolen. With `shard`, `local` has
/// the exchange of parameters in Optimizer::step too, and a step is a backward that averages.
struct OverlapReport {
  int64_t steps = 0;      ///< number of steps in the averages
  double step_ms = 0;     ///< from the end of one gradient all-reduce to the end of the next
  double local_ms = 0;    ///< computation: step - exposed - stolen
  double exposed_ms = 0;  ///< waiting for communication after backward
  double stolen_ms = 0;   ///< time in which the thread of backward was not running after communication had started
  double comm_ms = 0;     ///< from launch to completion of the buckets; overlapping intervals count once
};
/// One line: "step 16.1 ms = local 14.9 + exposed 0.8 + stolen 0.4 (communication 3.1 ms, 74 % hidden)".
TANDEM_API std::string to_string(const OverlapReport& report);

/// Stores the gradients of parameters in flat buckets and all-reduces each bucket (mean over the ranks) as soon as
/// backward has computed it, in the same order on all ranks. The part of DistributedDataParallel that does not depend
/// on modules.
///
/// Construction is collective: it checks that names, shapes and dtypes of parameters and buffers, the hooks and the
/// tuning file are equal on all ranks (StateError on every rank, naming the first difference), then broadcasts the
/// values of rank 0. Afterwards each backward pass that reaches a parameter, outside no_sync(), is collective: it
/// returns when all gradients are averaged, or throws CommError. Parameters that do not require grad are only
/// broadcast. If all ranks unfreeze them later, their gradients are averaged too, exactly (without hooks) and after the
/// others, not overlapped with backward; a new reducer gives them buckets.
///
/// Backward throws StateError on every rank, naming parameters and ranks, if ranks froze different parameters, and if
/// parameters were changed on some ranks only, or before their gradients were averaged, so that values differ.
///
/// CPU and CUDA tensors of floating dtypes; all CUDA parameters on one GPU.  On CUDA, backward returns when all ranks
/// have started the all-reduces; the current stream, not the host, waits for the transfers.
///
/// With `shard`, after backward Tensor::grad() is the part of the mean that this rank updates: one dimension, the
/// elements [begin, end) of the parameter in row-major order, often none. Within no_sync() it is this rank's whole
/// gradient. Optimizer::step is then collective: it updates these elements and exchanges the parameters, so that they
/// are equal on all ranks afterwards. clip_grad_norm_ and GradScaler use the gradients of all ranks. Backward passes
/// without zero_grad add to the part. Results are those of kNone, bit by bit, on CPUs and without these
/// (docs/sharding.md): clip_grad_norm_ adds in another order, and several backward passes are averaged one by one.
/// Optimizers that need whole parameters (Muon) throw StateError, and so do set_grad and capture by a cuda::Graph.
/// Construction moves the parameters to other memory.
///
/// With kParameters, a parameter has elements only while its unit is gathered: during calls of the unit's module
/// (ModuleScope), and in backward; the root unit from the call of the model to the end of backward. Parameters remain
/// the same objects. Reading one at other times throws StateError, except within gathered(). All ranks must call the
/// same units in the same order. Module::state_dict() contains this rank's pieces.
///
/// A parameter's own post-accumulate-grad hooks see this rank's gradient if they were registered before the reducer was
/// made; later ones must not read it, because it may be being averaged.
///
/// With hooks that need several all-reduces (PowerSGD), backward on CPU must not start other collectives on the same
/// group: use a separate group for SyncBatchNorm.
class TANDEM_API GradientReducer {
 public:
  /// Collective. Throws StateError if ranks differ, if `group` is null, or if a gradient belongs to another reducer;
  /// ValueError for invalid options or without parameters that require grad. With kParameters, unit_of[i] is the path
  /// of the unit of the i-th parameter; if it is empty, all belong to the root unit.
  GradientReducer(NamedTensors parameters, NamedTensors buffers, std::shared_ptr<ProcessGroup> group,
                  ReducerOptions options = {}, const std::vector<std::string>& unit_of = {});
  /// Moves the gradients to separate memory; with `shard`, drops them. Aborts the group if all-reduces are in flight.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// While the handle exists, backward accumulates gradients locally; the first backward after it averages the sums.
  HookHandle no_sync();
  /// Broadcasts the buffers of rank 0. Collective.
  void broadcast_buffers();

  /// Throws StateError if these lists are not the tensors that the reducer was made with.
  void check_not_replaced(const NamedTensors& parameters, const NamedTensors& buffers) const;

  /// With kParameters: the path of each unit, that of the root being "", and the observer of calls of its module.
  std::vector<std::pair<std::string, RefPtr<ModuleObserver>>> units() const;
  /// With kParameters: while the handle exists, the parameters of the units with these paths (none: of all) are whole,
  /// also in Module::state_dict(); they need their full memory. This rank's pieces of changed parameters are kept.
  /// Collective. Steps must not be made. A reducer that is destroyed in this scope leaves whole parameters.
  HookHandle gathered(const std::vector<std::string>& units = {});

  const BucketPlan& plan() const;  ///< layout of the buckets
  Shard shard() const;             ///< of the options
  /// Averages since construction or the last reset_report(), without the first step. Waits for the GPU.
  OverlapReport report() const;
  /// Starts a new measurement for report().
  void reset_report();
  /// The error of the hooks in the last measured step (ReducerOptions::hook_report_every); equal on all ranks. Rank 0
  /// logs it.
  HookReport hook_report() const;
  /// State of the hooks on this rank; needed for a bit-exact restart. Empty without hooks.
  State state_dict() const;
  /// Throws StateError, without changes, if the state belongs to other hooks or another model.
  void load_state_dict(const State& state);
  /// Loads the states saved(0), ..., saved(num_ranks - 1) of a run with another number of ranks: floating-point tensors
  /// become the mean over these ranks, so that the mean of the pending corrections (error feedback) is kept; other
  /// values are those of saved(0). Throws StateError as above, and if the states have other tensors.
  void load_state_dict(int num_ranks, const std::function<State(int rank)>& saved);
  /// Excludes the current step from the report. Call it after an evaluation or a checkpoint.
  void exclude_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::distributed
