// Selects the network interface for a group's connections. Private to distributed/backends/network.
#pragma once

#include <string>
#include <vector>

#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

struct Interface {
  std::string name;     ///< "eth0"
  std::string address;  ///< numeric
  bool is_loopback = false;
};

/// All interfaces that are up and have an address, IPv4 first. An interface with several addresses has one entry for
/// each.
std::vector<Interface> list_interfaces();

/// Returns the first of these: options.network_interface (a name or an address of this host); TANDEM_SOCKET_IFNAME;
/// GLOO_SOCKET_IFNAME; loopback if `same_machine` (all ranks share one kernel and its network); the interface whose
/// address is used to reach the store's host (MASTER_ADDR); the first interface that is not loopback. Throws CommError
/// with a list of all interfaces.
Interface choose_interface(const ProcessGroupOptions& options, bool same_machine);

}}}  // namespace tandem::v0::distributed::network
