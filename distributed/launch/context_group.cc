// Separate from context.cc, so that programs that never use a group do not link the backends.
#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// "0-3 7" for {0, 1, 2, 3, 7}; `ranks` must be sorted.
std::string format_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += str(i == 0 ? "" : " ", ranks[i]);
    if (last > i) text += str("-", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

const std::shared_ptr<ProcessGroup>& Context::group() {
  if (!group_) {
    group_ = ProcessGroup::create({.store = store_,
                                   .rank = rank_,
                                   .world_size = world_size_,
                                   .timeout = timeout_,
                                   .thread_ranks = thread_ranks_,
                                   .backend = backend_,
                                   .network_interface = interface_});
  }
  return group_;
}

std::shared_ptr<ProcessGroup> Context::new_group(const std::vector<int>& ranks, const NewGroupOptions& options) {
  std::vector<int> members = ranks;
  std::sort(members.begin(), members.end());
  TANDEM_CHECK(ValueError, !members.empty(), "new_group: ranks is empty");
  for (const int rank : {members.front(), members.back()}) {
    TANDEM_CHECK(ValueError, rank >= 0 && rank < world_size_, "new_group: rank ", rank, " is not in [0, ", world_size_,
                 ")");
  }
  const auto twice = std::adjacent_find(members.begin(), members.end());
  TANDEM_CHECK(ValueError, twice == members.end(), "new_group: rank ", *twice, " appears twice in ranks");
  const auto own = std::lower_bound(members.begin(), members.end(), rank_);
  TANDEM_CHECK(ValueError, own != members.end() && *own == rank_, "new_group: rank ", rank_,
               " is the calling rank but not one of ranks ", format_ranks(members),
               "\n  only members may call new_group");
  // Keys contain the members, so that other groups may use the same name.
  const std::string prefix = str("new_group/", format_ranks(members), "/", options.name, "/");
  int64_t call = 0;
  {
    std::lock_guard lock(calls_mutex_);
    call = ++calls_[prefix];
  }
  std::string name = options.name.empty() ? "ranks " + format_ranks(members) : options.name;
  if (call > 1) name += str(" #", call);
  return ProcessGroupAccess::create_deferred({.store = make_prefix_store(str(prefix, call, "/"), store_),
                                              .rank = static_cast<int>(own - members.begin()),
                                              .world_size = static_cast<int>(members.size()),
                                              .name = name,
                                              .timeout = options.timeout.value_or(timeout_),
                                              .thread_ranks = thread_ranks_,
                                              .backend = options.backend.empty() ? backend_ : options.backend,
                                              .ranks = members,
                                              .network_interface = interface_});
}

}}}  // namespace tandem::v0::distributed
