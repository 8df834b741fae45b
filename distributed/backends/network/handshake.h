// Connects the ranks of a group to each other. Private to distributed/backends/network.
#pragma once

#include <string>
#include <vector>

#include <tandem/distributed/backends/network/interface.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

struct Connections {
  std::vector<FileDescriptor> sockets;  ///< by rank; empty for this rank itself
  int missing = -1;                     ///< the first rank without a connection; -1: none is missing
  std::string error;                    ///< why it is missing
};

/// Connects this rank with every other rank of the group over `interface`; collective.
///
/// A rank connects to all lower ranks, and accepts connections of all higher ranks at one listening socket. Both ends
/// first send a message of fixed size with `token`, which only the ranks know. A connection without the token is closed
/// and named in a warning. It never replaces a rank: a rank whose connection closes early connects again.
///
/// `token` has 2 * wire::kTokenBytes characters. Stops waiting after 30 s, and returns an error. Throws CommError at
/// the rendezvous' deadline, or if this rank cannot listen or another rank has ended.
Connections connect_ranks(const ProcessGroupOptions& options, const Interface& interface, const std::string& token,
                          Rendezvous& rendezvous);

}}}  // namespace tandem::v0::distributed::network
