#include <tandem/distributed/context.h>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch/context_access.h>
#include <tandem/distributed/launch/interrupts.h>

namespace tandem { inline namespace v0 { namespace distributed {

bool Context::should_stop() const { return world_size_ == 1 ? stop_requested() : stop_agreed_; }

bool Context::stop_requested() const { return stop_requested_ || interrupt_signal() != 0; }

Context& Context::current() {
  const std::shared_ptr<void>& slot = RankContext::current().distributed_slot;
  TANDEM_CHECK(
      StateError, slot != nullptr,
      "Context::current: this thread is not a rank; call it in a function of launch, spawn or run_threads, or call "
      "init_process_group first");
  return *static_cast<Context*>(slot.get());
}

std::shared_ptr<Context> ContextAccess::install(RankContext& rank_context, const ContextOptions& options) {
  open_standard_streams();
  auto context = std::make_shared<Context>();
  context->rank_ = options.rank;
  context->world_size_ = options.world_size;
  context->local_rank_ = options.local_rank;
  context->device_ = options.device;
  context->timeout_ = options.timeout;
  context->thread_ranks_ = options.thread_ranks;
  context->store_ = options.store;
  context->backend_ = options.backend;
  context->interface_ = options.network_interface;
  context->session_ = options.session;
  rank_context.rank = options.rank;
  rank_context.world_size = options.world_size;
  rank_context.local_rank = options.local_rank;
  rank_context.local_world_size = options.local_world_size;
  rank_context.num_threads = options.num_threads;
  rank_context.distributed_slot = context;
  return context;
}

void ContextAccess::drop_group(Context& context) { context.group_.reset(); }

}}}  // namespace tandem::v0::distributed
