// A connection that is reset as by a firewall or an administrator, without the privileges of one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::testing_support {

/// Resets this process's TCP connections to `port` of the loopback: both ends get ECONNRESET, the descriptors stay open.  Returns
/// how many there were.
inline int reset_connections(int port) {
  int num_reset = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sin_family != AF_INET) continue;
    if (ntohs(peer.sin_port) != port) continue;
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;  // disconnects
    // Not connect(): ThreadSanitizer takes that for a write to a descriptor which other threads use.
    num_reset += syscall(SYS_connect, fd, &nowhere, sizeof(nowhere)) == 0 ? 1 : 0;
  }
  return num_reset;
}

}  // namespace tandem::testing_support
