// Sums of integers over the ranks of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace train {

/// Replaces `counts` by their sums over the ranks of the group; does nothing without a group. Collective. `metric` is
/// the name of the all_reduce in errors and traces.
void sum_over_ranks(std::span<int64_t> counts, const std::shared_ptr<distributed::ProcessGroup>& group,
                    const char* metric);

}}}  // namespace tandem::v0::train
