// Apart from context.cc, so that a program that never asks for its group links no backend.
#include <tandem/distributed/context.h>
#include <tandem/distributed/process_group.h>

namespace tandem::inline v0::distributed {

const std::shared_ptr<ProcessGroup>& Context::group() {
  if (!group_) {
    group_ = ProcessGroup::create({.store = store_,
                                   .rank = rank_,
                                   .world_size = world_size_,
                                   .timeout = timeout_,
                                   .thread_ranks = thread_ranks_});
  }
  return group_;
}

}  // namespace tandem::inline v0::distributed
