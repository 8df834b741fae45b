// Steps of communication hooks: their state, and the measurement of their error. Private to distributed/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/ddp/comm_hook_pipeline.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Runs the hooks of a reducer. end_step() of a measured step replays the all-reduces from a snapshot of the local
/// gradients and hook states: without hooks, with the first hook, with the first two, and so on. It then restores the
/// results of the step.
class MeasuredCommHooks {
 public:
  /// Measures every `report_every`-th step; 0: never. Throws ValueError for an invalid chain.
  MeasuredCommHooks(std::shared_ptr<ProcessGroup> group, CommHooks hooks, std::vector<GradBucket> buckets,
                    int64_t report_every);

  /// See CommHookPipeline::launch().
  Work launch(size_t bucket);
  /// Call when all buckets of a step are complete. Collective in a measured step.
  void end_step();
  const HookReport& report() const { return report_; }
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  bool is_measured_step() const { return report_every_ > 0 && (step_ + 1) % report_every_ == 0; }
  /// Means of the snapshot, computed with the first `num_hooks` hooks; 0 hooks: exact means.
  std::vector<Tensor> replay(size_t num_hooks);
  HookReport measure();
  std::vector<Tensor> copy_values() const;

  const std::shared_ptr<ProcessGroup> group_;
  const CommHooks hooks_;
  const std::vector<GradBucket> buckets_;
  const int64_t report_every_;
  const std::shared_ptr<CommHookPipeline> pipeline_;
  int64_t step_ = 0;  ///< completed steps
  HookReport report_;
  std::vector<Tensor> snapshot_values_;  ///< gradients of this rank, by bucket
  State snapshot_state_;                 ///< state_dict() before the measured step
};

/// The state of rank 0, with the mean over all ranks of each floating-point tensor, computed in float64.
State mean_over_ranks(int num_ranks, const std::function<State(int rank)>& state_of);

}}}  // namespace tandem::v0::distributed
