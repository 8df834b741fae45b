// Synchronous data-parallel training of a module.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/module_observer.h>
#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/distributed/ddp/memory_plan.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 {

/// Data-parallel training, as torch.nn.parallel.DistributedDataParallel: each rank computes on its own part of the
/// batch, and backward stores the mean over all ranks in each parameter's gradient. The all-reduce overlaps with
/// backward.
///
///     DistributedDataParallel ddp(model, context.group());
///     cross_entropy(ddp(images), labels).backward();
///
/// M needs named_parameters(), named_buffers(), freeze_structure() and operator(), like nn::Module. Construction and
/// each backward are collective; see distributed::GradientReducer for errors, devices and streams. The module must
/// outlive this object. During the lifetime of this object, moving the module, adding parameters, buffers or child
/// modules, and calls after a parameter or buffer was replaced by another tensor, throw StateError. Not thread-safe.
template <class M>
class DistributedDataParallel {
 public:
  /// Collective. `options` are those of the reducer, equal on all ranks. Throws as GradientReducer does.
  DistributedDataParallel(M& module, std::shared_ptr<distributed::ProcessGroup> group,
                          distributed::ReducerOptions options = {})
      : module_(module),
        reducer_(module.named_parameters(), module.named_buffers(), std::move(group), options,
                 units_of(module, options)),
        frozen_(module.freeze_structure("its gradients are stored in the buckets of a DistributedDataParallel")) {
    for (auto& [path, observer] : reducer_.units()) {
      if constexpr (requires { module.observe_calls(path, observer); }) module.observe_calls(path, observer);
      if (path.empty()) calls_ = observer;
    }
  }

  /// Forwards to the operator() of the module.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    reducer_.check_not_replaced(module_.named_parameters(), module_.named_buffers());
    const ObservedCall call(calls_);
    return module_(std::forward<Args>(args)...);
  }

  /// The module's parameters.
  auto parameters() const { return module_.parameters(); }
  /// The module given to the constructor.
  M& module() { return module_; }
  /// The reducer, which stores the gradients and has reports, hooks and the bucket plan.
  distributed::GradientReducer& reducer() { return reducer_; }
  /// While the handle exists, backward accumulates gradients locally; the first backward after its destruction averages
  /// the sums.
  HookHandle no_sync() { return reducer_.no_sync(); }
  /// With kParameters: the parameters of these units (none: of all) are whole while the handle exists. Collective; see
  /// distributed::GradientReducer::gathered.
  HookHandle gathered(const std::vector<std::string>& units = {}) { return reducer_.gathered(units); }
  /// Broadcasts the buffers of rank 0, for evaluation and checkpoints. Collective.
  void broadcast_buffers() { reducer_.broadcast_buffers(); }

 private:
  static std::vector<std::string> units_of(const M& module, const distributed::ReducerOptions& options) {
    if constexpr (requires { module.units_of_parameters(options.units); }) {
      if (options.shard == distributed::Shard::kParameters) return module.units_of_parameters(options.units);
    }
    return {};
  }

  M& module_;
  distributed::GradientReducer reducer_;
  RefPtr<ModuleObserver> calls_;  ///< of the root unit; null unless kParameters
  HookHandle frozen_;
};

/// The memory of a DistributedDataParallel of `module` with these options and of an optimizer with `states` float32
/// values per parameter (AdamW: 2). Reads no parameter, so that the module may be created under a DeferGuard.
template <class M>
distributed::MemoryPlan memory_plan(const M& module, int num_ranks, const distributed::ReducerOptions& options,
                                    int states = 2) {
  return distributed::plan_memory(module.named_parameters(), module.units_of_parameters(options.units), num_ranks,
                                  options, states);
}

}}  // namespace tandem::v0
