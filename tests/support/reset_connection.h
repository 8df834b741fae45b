// Resets a TCP connection as a firewall would, without privileges.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::testing_support {

/// Resets this process's TCP connections to `port` on the loopback interface: both ends get ECONNRESET, the descriptors
/// stay open. Returns the number of connections.
inline int reset_connections(int port) {
  int num_reset = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sin_family != AF_INET) continue;
    if (ntohs(peer.sin_port) != port) continue;
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;  // disconnects
    // A raw system call: ThreadSanitizer would treat connect() as a write to a descriptor that other threads use.
    num_reset += syscall(SYS_connect, fd, &nowhere, sizeof(nowhere)) == 0 ? 1 : 0;
  }
  return num_reset;
}

}  // namespace tandem::testing_support
