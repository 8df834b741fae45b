#include <tandem/distributed/rendezvous/socket.h>

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Returns null and sets `error` if the name cannot be resolved.
Addresses resolve(const std::string& host, int port, bool passive, std::string* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) {
    *error = gai_strerror(status);
    return nullptr;
  }
  return Addresses(list);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// Advice for a loopback address that cannot be used, in the system's state or because of `error`; else "".
std::string loopback_advice(const sockaddr* address, int error = 0) {
  if (!is_loopback(address)) return "";
  ifreq interface = {};
  std::strcpy(interface.ifr_name, "lo");
  const FileDescriptor fd(socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool is_down = fd && ioctl(fd.get(), SIOCGIFFLAGS, &interface) == 0 && (interface.ifr_flags & IFF_UP) == 0;
  if (is_down) return "the loopback interface lo is down\n  enable it: ip link set lo up";
  if (error != EADDRNOTAVAIL) return "";
  return str("the loopback interface lo does not have this address\n  add it: ip address add ",
             address->sa_family == AF_INET6 ? "::1/128" : "127.0.0.1/8", " dev lo");
}

/// Tries to connect once. Returns 0 or errno.
int try_connect(const addrinfo& address, Clock::time_point deadline, FileDescriptor* connected) {
  FileDescriptor fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd ready{fd.get(), POLLOUT, 0};
    int n = 0;
    do {
      n = poll(&ready, 1, milliseconds_until(deadline));
    } while (n < 0 && errno == EINTR);
    if (n == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    TANDEM_CHECK(CommError, getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0,
                 "store: getsockopt failed: ", std::strerror(errno));
    if (error != 0) return error;
  }
  if (is_connected_to_itself(fd.get())) {
    const linger reset = {1, 0};  // frees the port immediately, for the host
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    return ECONNREFUSED;
  }
  *connected = std::move(fd);
  return 0;
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(above_standard(fd)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string listening_address(const std::string& host) {
  std::string error;
  const Addresses list = resolve(host, 0, true, &error);
  if (list == nullptr) return "";  // the name may resolve later, as those of pods do
  if (is_loopback(list->ai_addr)) {
    in6_addr number;
    const bool literal =
        inet_pton(AF_INET, host.c_str(), &number) == 1 || inet_pton(AF_INET6, host.c_str(), &number) == 1;
    return literal || host == "localhost" ? host : "";
  }
  const FileDescriptor fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool foreign = fd && bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 && errno == EADDRNOTAVAIL;
  return foreign ? "" : host;
}

std::string loopback_hint(const std::string& host) {
  std::string error;
  const Addresses list = resolve(host, 0, true, &error);
  const bool is_local = list != nullptr && is_loopback(list->ai_addr) && !listening_address(host).empty();
  return is_local ? str("\n  ", host, " is a loopback address, which other hosts cannot reach") : "";
}

FileDescriptor listen_on(const std::string& host, int port, const char* owner) {
  std::string error;
  const Addresses list = resolve(host, port, true, &error);
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    FileDescriptor fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool listens =
        fd && bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0;
    const int status = listens ? 0 : errno;
    error = loopback_advice(address->ai_addr, status);
    if (error.empty() && status != 0) error = std::strerror(status);
    if (error.empty()) return fd;
  }
  throw IoError(str(owner, ": cannot listen on ", host.empty() ? "*" : host, ":", port, ": ", error));
}

int local_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  TANDEM_CHECK(IoError, getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0,
               "store: getsockname: ", std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_connected_to_itself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 && own_length == peer_length &&
         std::memcmp(&own, &peer, own_length) == 0;
}

FileDescriptor connect_to(const std::string& host, int port, Clock::time_point deadline) {
  const auto begin = Clock::now();
  std::string error;
  for (;;) {
    const Addresses list = resolve(host, port, false, &error);
    for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
      const std::string advice = loopback_advice(address->ai_addr);
      TANDEM_CHECK(CommError, advice.empty(), "store: cannot connect to ", host, ":", port, ": ", advice);
      FileDescriptor fd;
      const int status = try_connect(*address, deadline, &fd);
      if (status == 0) {
        tune_connection(fd.get());
        return fd;
      }
      error = std::strerror(status);
    }
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) break;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::milliseconds(50)));
  }
  const auto waited = std::chrono::ceil<std::chrono::milliseconds>(deadline - begin);
  throw CommError(str("store: cannot connect to ", host, ":", port, " within ", waited.count(), " ms: ", error));
}

void tune_connection(int fd) {
  const auto set = [fd](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool is_delivered(int fd) {
  int waiting = 0;
  return ioctl(fd, SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

std::chrono::milliseconds silence(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

bool SilenceWatch::is_lost(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && is_lost(info, Clock::now());
}

bool SilenceWatch::is_lost(const tcp_info& info, Clock::time_point now) {
  constexpr std::chrono::milliseconds kCoarse{20};  // resolution of the kernel's times
  const std::chrono::milliseconds silence(info.tcpi_last_ack_recv);
  const bool answered = silence <= now - std::exchange(last_look_, now) + kCoarse;
  if (answered || info.tcpi_retransmits < retransmits_) retransmits_ = info.tcpi_retransmits;
  // If a program does not read, its machine still answers retransmissions and window probes, if only with a zero
  // window. These become rare, so a long silence alone proves nothing: several of them must be unanswered. A send that
  // fails without a route counts too.
  const bool asked = (info.tcpi_unacked > 0 && info.tcpi_retransmits >= retransmits_ + 2) || info.tcpi_probes >= 2;
  unanswered_ = !answered && asked ? unanswered_ + 1 : 0;
  return silence >= longest_ && unanswered_ >= 2;  // two checks: the last answer has had time to arrive
}

int milliseconds_until(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000000));
}

}}}  // namespace tandem::v0::distributed
