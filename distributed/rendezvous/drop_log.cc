#include <tandem/distributed/rendezvous/drop_log.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include <tandem/base/log.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr int kMaxWarnings = 10;

std::string address_text(const sockaddr_storage& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return str(host, ":", port);
}

/// " (user 1000)" if the kernel lists an open socket that is bound to the address, else "".
std::string user_text(const sockaddr_storage& address) {
  // The list shows addresses as 32-bit words of this host's byte order.
  const bool is_v6 = address.ss_family == AF_INET6;
  std::array<uint32_t, 4> words = {};
  in_port_t port = 0;
  if (is_v6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(words.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
    port = v6.sin6_port;
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    words[0] = v4.sin_addr.s_addr;
    port = v4.sin_port;
  }
  std::string wanted;
  char digits[16];
  for (size_t i = 0; i < (is_v6 ? 4 : 1); ++i) {
    std::snprintf(digits, sizeof(digits), "%08X", words[i]);
    wanted += digits;
  }
  std::snprintf(digits, sizeof(digits), ":%04X", ntohs(port));
  wanted += digits;

  std::ifstream list(is_v6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp");
  for (std::string line; std::getline(list, line);) {
    std::vector<std::string> fields;
    for (size_t begin = 0; (begin = line.find_first_not_of(' ', begin)) != std::string::npos;) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      fields.push_back(line.substr(begin, end - begin));
      begin = end;
    }
    constexpr size_t kLocalAddress = 1, kUser = 7, kInode = 9;  // inode 0: closed, user unknown
    if (fields.size() > kInode && fields[kLocalAddress] == wanted && fields[kInode] != "0")
      return str(" (user ", fields[kUser], ")");
  }
  return "";
}

}  // namespace

void DropLog::warn(const sockaddr_storage& other_end, const std::string& why) {
  if (num_warnings_ >= kMaxWarnings) return;
  ++num_warnings_;
  log(LogLevel::kWarning, owner_, ": dropped the connection from ", address_text(other_end), user_text(other_end), ": ",
      why, num_warnings_ == kMaxWarnings ? " (further warnings are suppressed)" : "");
}

}}}  // namespace tandem::v0::distributed
