// Which of this host's network interfaces a group's connections use. Private to distributed/backends/gloo.
#pragma once

#include <string>
#include <vector>

#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

struct Interface {
  std::string name;     ///< "eth0"
  std::string address;  ///< numeric
  bool is_loopback = false;
};

/// Those that are up and have an address; an interface with several is there several times, IPv4 first.
std::vector<Interface> list_interfaces();

/// options.interface (a name or an address of this host), else TANDEM_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME, else
/// loopback where `same_machine` (all ranks share one kernel and its network), else the one whose address leads to the
/// store's host, else the first that is no loopback. Throws CommError that lists what there is.
Interface choose_interface(const ProcessGroupOptions& options, bool same_machine);

}}}  // namespace tandem::v0::distributed::gloo
