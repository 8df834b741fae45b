#include <tandem/distributed/backends/network/interface.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

std::string numeric(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

/// The local address from which this host would send a datagram to `host`. Sends nothing.
std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const FileDescriptor fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    if (fd && connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      return numeric(reinterpret_cast<const sockaddr*>(&own));
    }
  }
  return "";
}

std::string shown(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& i : interfaces) text += str("\n  ", i.name, "  ", i.address);
  return text.empty() ? "\n  none" : text;
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0) continue;
      // A link-local address is only valid on its own link. It contains a scope that other hosts cannot use.
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr))
        continue;
      const std::string address = numeric(i->ifa_addr);
      if (!address.empty()) interfaces.push_back({i->ifa_name, address, (i->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return interfaces;
}

Interface choose_interface(const ProcessGroupOptions& options, bool same_machine) {
  const std::vector<Interface> interfaces = list_interfaces();
  const auto find = [&](const auto& condition) -> std::optional<Interface> {
    const auto found = std::find_if(interfaces.begin(), interfaces.end(), condition);
    return found == interfaces.end() ? std::nullopt : std::optional(*found);
  };
  std::string wanted = options.network_interface;
  std::string source = "ProcessGroupOptions::network_interface";
  for (const char* variable : {"TANDEM_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    if (!wanted.empty()) break;
    wanted = env_string(variable).value_or("");
    source = variable;
  }
  if (!wanted.empty()) {
    if (const auto found = find([&](const Interface& i) { return i.name == wanted || i.address == wanted; }))
      return *found;
    fail_to_join(options, str("no network interface has the name or address '", wanted, "' (from ", source,
                              "); interfaces that are up:", shown(interfaces)));
  }
  if (same_machine) {
    if (const auto found = find([](const Interface& i) { return i.is_loopback; })) return *found;
  }
  const auto is_usable = [&](const Interface& i) { return same_machine || !i.is_loopback; };
  if (const auto host = env_string("MASTER_ADDR")) {
    const std::string address = address_towards(*host);
    if (const auto found = find([&](const Interface& i) { return i.address == address && is_usable(i); }))
      return *found;
  }
  if (const auto found = find(is_usable)) return *found;
  fail_to_join(options, str("no network interface can reach other hosts; interfaces that are up:", shown(interfaces)));
}

}}}  // namespace tandem::v0::distributed::network
