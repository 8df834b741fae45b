// Gloo pairs over existing connections. Private to distributed/backends/gloo.
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

/// Creates one pair in `context` for each socket, for that socket's rank. `device` must have created `context`; both
/// must use TCP. Each pair has its own file descriptor for the connection. Calls prepare(rank, pair) on another thread
/// before the pair reads, because a buffer that is created later would not be notified of a connection that has already
/// closed. Throws IoError, or Gloo's exceptions.
///
/// Gloo's own function to connect a pair accepts the first connection at a port and trusts the data that it reads:
/// invalid lengths terminate the process. So a new pair first accepts an arbitrary connection. Then the authenticated
/// connection replaces it under the same descriptor. All this happens on the device's thread, the only thread that
/// reads, so nothing is read from the replaced connection.
void make_connected_pairs(::gloo::transport::Device& device, ::gloo::transport::Context& context,
                          const std::vector<FileDescriptor>& sockets,
                          FunctionRef<void(int rank, ::gloo::transport::Pair& pair)> prepare);

}}}  // namespace tandem::v0::distributed::gloo
