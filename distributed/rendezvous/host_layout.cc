#include <tandem/distributed/rendezvous/host_layout.h>

#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/rendezvous.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

int index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

ProcessGroupOptions options_among(const ProcessGroupOptions& options, const std::vector<int>& ranks,
                                  const char* where) {
  ProcessGroupOptions inner = options;
  inner.rank = index_of(ranks, options.rank);
  inner.world_size = static_cast<int>(ranks.size());
  inner.ranks.clear();
  for (const int rank : ranks) inner.ranks.push_back(job_rank(options, rank));
  inner.name += str(", ", where, " rank ", inner.ranks.front());
  return inner;
}

}  // namespace

int HostLayout::host_of(int rank) const {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  return static_cast<int>(found - hosts.begin());
}

int HostLayout::local_rank(int rank) const { return index_of(hosts[static_cast<size_t>(host_of(rank))], rank); }

bool HostLayout::is_even() const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const std::vector<int>& ranks) { return ranks.size() == hosts.front().size(); });
}

std::string HostLayout::describe() const {
  std::string text = str(num_hosts(), num_hosts() == 1 ? " host x " : " hosts x ", hosts.front().size());
  if (is_even()) return text;
  for (size_t host = 1; host < hosts.size(); ++host) text += str(" + ", hosts[host].size());
  return text;
}

HostLayout group_by_host(const std::vector<std::string>& identities) {
  HostLayout layout;
  std::vector<std::string> seen;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto found = std::find(seen.begin(), seen.end(), identities[rank]);
    const size_t host = static_cast<size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(identities[rank]);
      layout.hosts.emplace_back();
    }
    layout.hosts[host].push_back(static_cast<int>(rank));
  }
  return layout;
}

ProcessGroupOptions options_inside(const ProcessGroupOptions& options, const HostLayout& layout) {
  return options_among(options, layout.hosts[static_cast<size_t>(layout.host_of(options.rank))], "host of");
}

ProcessGroupOptions options_across(const ProcessGroupOptions& options, const HostLayout& layout) {
  std::vector<int> ranks;
  const auto local_rank = static_cast<size_t>(layout.local_rank(options.rank));
  for (const std::vector<int>& host : layout.hosts) ranks.push_back(host[local_rank]);
  return options_among(options, ranks, "across from");
}

HostLayout find_hosts(const ProcessGroupOptions& options) {
  if (options.world_size == 1) return {{{0}}};
  Rendezvous rendezvous(options, "hosts");
  const HostLayout layout = group_by_host(rendezvous.exchange("host", host_identity(options)));
  rendezvous.finish();
  return layout;
}

}}}  // namespace tandem::v0::distributed
