// Models whose parameters get their memory later.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

/// While in scope, parameters with two or more dimensions that this thread adds to modules have no memory. The
/// functions of nn::init record what they would do; the first use of a parameter makes its memory and its initial
/// values, which have the bits of a model that was created without the guard. With Shard::kParameters,
/// DistributedDataParallel does so unit by unit and keeps this rank's pieces, so that no rank has the whole model at
/// any time:
///
///     DeferGuard defer;
///     Gpt2 model(config);
///     DistributedDataParallel ddp(model, context.group(), {.shard = distributed::Shard::kParameters});
///
/// Module::to() keeps parameters deferred; their first use converts them one by one. Buffers and parameters with fewer
/// dimensions are made at once. Tensors that are parameters already (tied ones), or to which there are other handles,
/// are unaffected. A parameter that no function of nn::init has set throws StateError at its first use, unless
/// load_state_dict sets it: values of a temporary given to add_parameter are not kept.
class TANDEM_API DeferGuard {
 public:
  DeferGuard() : context_(RankContext::current()), before_(context_.defer_init) { context_.defer_init = true; }
  ~DeferGuard() { context_.defer_init = before_; }
  DeferGuard(const DeferGuard&) = delete;
  DeferGuard& operator=(const DeferGuard&) = delete;

 private:
  RankContext& context_;
  bool before_;
};

}}  // namespace tandem::v0
