// Which ranks of a group share a host. Private to distributed/.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Ranks of the group by host: hosts ascend by their lowest rank, ranks ascend within a host.
struct HostLayout {
  std::vector<std::vector<int>> hosts;

  int num_hosts() const { return static_cast<int>(hosts.size()); }
  /// Index of the rank's host.
  int host_of(int rank) const;
  /// Index of the rank within its host.
  int local_rank(int rank) const;
  /// Whether all hosts have the same number of ranks.
  bool is_even() const;
  /// "1 host x 4", "2 hosts x 2" or, if the hosts differ, "2 hosts x 2 + 1".
  std::string describe() const;
};

/// `identities`: host identity of each rank, by rank.
HostLayout group_by_host(const std::vector<std::string>& identities);

/// Options of the subgroup of options.rank's host: rank and size in the subgroup, members as ranks in the job, and a
/// separate name.
ProcessGroupOptions options_inside(const ProcessGroupOptions& options, const HostLayout& layout);
/// Options of the subgroup across hosts: the ranks with the same index within their hosts. Every host must have such a
/// rank.
ProcessGroupOptions options_across(const ProcessGroupOptions& options, const HostLayout& layout);

/// Groups the ranks by host. Collective. Throws CommError like ProcessGroup::create.
HostLayout find_hosts(const ProcessGroupOptions& options);

}}}  // namespace tandem::v0::distributed
