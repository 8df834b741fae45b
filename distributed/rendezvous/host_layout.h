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
  /// The rank's number in its host.
  int local_rank(int rank) const;
  /// Whether every host has as many ranks.
  bool is_even() const;
  /// "1 host x 4", "2 hosts x 2" or, where hosts differ, "2 hosts x 2 + 1".
  std::string describe() const;
};

/// `identities`: of each rank's host, by rank.
HostLayout group_by_host(const std::vector<std::string>& identities);

/// Who options.rank's group inside its host is: its members, in this group's numbers and the job's, under a name of its
/// own.
ProcessGroupOptions options_inside(const ProcessGroupOptions& options, const HostLayout& layout);
/// The same across hosts: the ranks that have the same number in their hosts. Every host must have such a rank.
ProcessGroupOptions options_across(const ProcessGroupOptions& options, const HostLayout& layout);

/// Collective. Throws CommError as ProcessGroup::create.
HostLayout find_hosts(const ProcessGroupOptions& options);

}}}  // namespace tandem::v0::distributed
