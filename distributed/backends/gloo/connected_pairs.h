// Gloo's pairs over connections that exist already. Private to distributed/backends/gloo.
#pragma once

#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace gloo::transport {
class Context;
class Device;
class Pair;
}  // namespace gloo::transport

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// Makes the pair of each socket's rank in `context`, which `device` made; both are of TCP.  A pair has a descriptor of
/// its own for the connection. Calls prepare(rank, pair) before the pair reads, on another thread: a buffer that is
/// made later would not be notified of a connection that has ended already. Throws IoError, or Gloo's exceptions.
///
/// Gloo's way to connect a pair accepts the first connection at a port, and Gloo believes what it reads: lengths that
/// do not fit end the process. So a new pair accepts any one connection, and the authenticated one is put under its
/// descriptor. All this happens on the device's thread, the only one that reads, so that nothing is read from the
/// former connection.
void make_connected_pairs(::gloo::transport::Device& device, ::gloo::transport::Context& context,
                          const std::vector<FileDescriptor>& sockets,
                          FunctionRef<void(int rank, ::gloo::transport::Pair& pair)> prepare);

}}}  // namespace tandem::v0::distributed::gloo
