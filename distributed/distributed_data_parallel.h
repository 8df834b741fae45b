// Data-parallel training of a module.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 {

/// Trains a module on all ranks of a group: each rank computes on its own part of a batch, and backward leaves the mean of
/// all ranks' gradients in every rank's parameters, exchanged while it runs.
///
///     DistributedDataParallel ddp(model, context.group());
///     cross_entropy(ddp(images), labels).backward();
///
/// M is anything with named_parameters(), named_buffers() and operator().  Construction and each backward are collective,
/// see distributed::GradientReducer.  The module must outlive this; while this lives, moving the module or adding to it
/// throws StateError; afterwards it is usable as before.
template <class M>
class DistributedDataParallel {
 public:
  DistributedDataParallel(M& module, std::shared_ptr<distributed::ProcessGroup> group,
                          distributed::ReducerOptions options = {})
      : module_(module),
        reducer_(module.named_parameters(), module.named_buffers(), std::move(group), options),
        frozen_(module.freeze_structure("its gradients are stored in the buckets of a DistributedDataParallel")) {}

  /// The module's own operator().
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return module_(std::forward<Args>(args)...);
  }

  M& module() { return module_; }
  distributed::GradientReducer& reducer() { return reducer_; }
  /// While the handle lives, backward only accumulates locally; the next backward after it exchanges the sums.
  HookHandle no_sync() { return reducer_.no_sync(); }
  /// Buffers = rank 0's: before evaluation and checkpoints.  Collective.
  void broadcast_buffers() { reducer_.broadcast_buffers(); }

 private:
  M& module_;
  distributed::GradientReducer reducer_;
  HookHandle frozen_;
};

}}  // namespace tandem::v0
