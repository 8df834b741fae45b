// Averages gradients over the ranks of a group while backward still runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/ddp/bucket_plan.h>
#include <tandem/distributed/gradient_hooks.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What to do about a parameter that a backward did not use on every rank.
enum class UnusedParameters {
  kError,  ///< throw on every rank, after the exchange, naming parameters and ranks
  kAllow,  ///< used nowhere: no gradient; used on some ranks: the mean over all, others counting as zero
};

struct ReducerOptions {
  BucketSizes buckets = {};
  UnusedParameters unused = UnusedParameters::kError;
  /// How buckets are averaged: {power_sgd({.rank = 4}), bf16()} sends PowerSGD's factors, and what it does not compress, as
  /// bfloat16.  None: exactly.  The same on all ranks; a hook object has one reducer.
  GradientHooks hooks = {};
  /// k > 0: every k-th exchange is run again, exactly and with the first hooks of the chain, to report how far they are
  /// from the exact means and what each adds; the training does not change.
  int64_t shadow_every = 0;
};

/// Where the time of a step went, in milliseconds, means over `steps`.  step = local + exposed + stolen.
struct OverlapReport {
  int64_t steps = 0;
  double step_ms = 0;     ///< from the end of one backward to the end of the next
  double local_ms = 0;    ///< the rest: what the step would take alone
  double exposed_ms = 0;  ///< backward was over and waited for communication
  double stolen_ms = 0;   ///< backward had begun to communicate, and its thread did not have its core
  double comm_ms = 0;     ///< from a bucket's launch to its arrival, overlapping times counted once
};
/// One line: "step 16.1 ms = local 14.9 + exposed 0.8 + stolen 0.4 (communication 3.1 ms, 74 % hidden)".
TANDEM_API std::string to_string(const OverlapReport& report);

/// Gives every parameter's gradient a slot in flat buffers, cut into buckets, and all-reduces each bucket (mean) as soon as
/// backward has filled it, always in the same order on all ranks.
///
/// Construction is collective: ranks compare a digest of the parameters' names, shapes and dtypes (StateError on every
/// rank, naming the first difference), then take rank 0's values of parameters and buffers.  From then on each backward
/// that reaches a parameter, outside no_sync, is collective too: it ends when all gradients are averaged.  Parameters that
/// do not require grad are left alone after construction.  Knows no module.  Not safe from many threads.  With hooks of
/// several exchanges (PowerSGD) on CPUs backward may run no other collectives on the group: give SyncBatchNorm one of its own.
class TANDEM_API GradientReducer {
 public:
  GradientReducer(NamedTensors parameters, NamedTensors buffers, std::shared_ptr<ProcessGroup> group,
                  ReducerOptions options = {});
  /// Gradients move back into memory of their own.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// While the handle lives, backward only accumulates locally; the next backward after it exchanges the sums.
  HookHandle no_sync();
  /// buffers = rank 0's.  Collective.
  void broadcast_buffers();

  const BucketPlan& plan() const;
  /// Means since construction or the last call of reset_report, without the first step after it.
  OverlapReport report() const;
  void reset_report();
  /// Of the newest shadow step; equal on all ranks.  Rank 0 logs it.
  HookReport hook_report() const;
  /// What the hooks keep from step to step, this rank's: needed to go on to the same bits.  Empty without hooks.
  State state_dict() const;
  /// Throws StateError, changing nothing, if it is of other hooks or of another model.
  void load_state_dict(const State& state);
  /// The running step is left out of the report: for after an evaluation or a checkpoint, which is no part of a step.
  void leave_out_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::distributed
