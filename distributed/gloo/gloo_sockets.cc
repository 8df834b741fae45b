#include <tandem/distributed/gloo/gloo_sockets.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include <tandem/base/function_ref.h>

namespace tandem::inline v0::distributed::gloo {

namespace {

/// Gloo's address: a sockaddr_storage, then a number that sockets do not have.
sockaddr_storage as_sockaddr(const std::vector<char>& address) {
  sockaddr_storage result = {};
  if (address.size() >= sizeof(result)) std::memcpy(&result, address.data(), sizeof(result));
  return result;
}

bool same(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto& x = reinterpret_cast<const sockaddr_in&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  if (a.ss_family != AF_INET6) return false;
  const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
  return x.sin6_port == y.sin6_port && std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof(x.sin6_addr)) == 0;
}

bool is_listening(int fd) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value != 0;
}

/// The address that getsockname or getpeername tells; of no family where it fails.
sockaddr_storage ask(int (*get)(int, sockaddr*, socklen_t*), int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (get(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) address = {};
  return address;
}

/// The first descriptor in this process that fits; -1 for none.
int find_descriptor(FunctionRef<bool(int fd)> fits) {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int found = -1;
  for (const dirent* entry; found < 0 && (entry = readdir(folder)) != nullptr;) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fits(fd)) found = fd;
  }
  closedir(folder);
  return found;
}

}  // namespace

void shield_listener(const std::vector<char>& address) {
  const sockaddr_storage wanted = as_sockaddr(address);
  const int fd = find_descriptor([&](int one) { return is_listening(one) && same(ask(getsockname, one), wanted); });
  if (fd < 0) return;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  // The filter sees a segment from its TCP header on; the header's length is in the upper half of byte 12, in words.
  sock_filter drop_data[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
      BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program = {sizeof(drop_data) / sizeof(drop_data[0]), drop_data};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void lift_shield(int fd) {
  const int unused = 0;
  setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

FileDescriptor find_connection(const std::vector<char>& own, const std::vector<char>& peer) {
  const sockaddr_storage here = as_sockaddr(own);
  const sockaddr_storage there = as_sockaddr(peer);
  const int fd =
      find_descriptor([&](int one) { return same(ask(getsockname, one), here) && same(ask(getpeername, one), there); });
  if (fd < 0) return FileDescriptor();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

}  // namespace tandem::inline v0::distributed::gloo
