// The sockets below Gloo's pairs, which it does not show.  Private to distributed/gloo.
//
// A pair listens on a port of its own until one peer has come, whoever that is, and believes what it then reads: lengths
// that do not fit end the process.  So nobody is heard before the store has confirmed who is at the other end: until
// then a filter lets the kernel drop every segment that carries data.
#pragma once

#include <vector>

#include <tandem/distributed/store/socket.h>

namespace tandem::inline v0::distributed::gloo {

/// Makes the listening socket of that address, and the connection that it accepts, deaf, and keeps the former from
/// programs that this one starts.  `address` is what gloo::transport::Address::bytes() gives.
void shield_listener(const std::vector<char>& address);

/// A handle of the connection between these two ends, the first of which is ours; empty where there is none.  One end is
/// not enough: the kernel gives connections to different peers the same port.
FileDescriptor find_connection(const std::vector<char>& own, const std::vector<char>& peer);

void lift_shield(int fd);

}  // namespace tandem::inline v0::distributed::gloo
