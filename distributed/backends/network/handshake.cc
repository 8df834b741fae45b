#include <tandem/distributed/backends/network/handshake.h>

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/drop_log.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

using Clock = Rendezvous::Clock;

// All ranks are already running when connecting begins, so a longer time would be wasted.
constexpr std::chrono::seconds kConnectTime{30};
constexpr std::chrono::seconds kHelloTime{5};
constexpr std::chrono::milliseconds kPollInterval{20};
constexpr std::chrono::milliseconds kRetryInterval{50};
constexpr size_t kMaxStrangers = 64;
constexpr uint32_t kHelloMagic = 0x31484754;  // "TGH1"

/// First message of both ends of a connection.
struct Hello {
  uint32_t magic = kHelloMagic;
  int32_t rank = -1;
  std::array<char, 2 * wire::kTokenBytes> token = {};
};

/// A connection whose other end has not sent the token yet.
struct Handshake {
  FileDescriptor socket = {};
  int rank = -1;                    // peer that this rank connects to; -1: accepted connection, the peer is unknown
  sockaddr_storage other_end = {};  // address of the other end of an accepted connection
  bool said_hello = false;
  Clock::time_point begin = Clock::now();
  Hello received = {};
  size_t num_received = 0;  // bytes of `received`
};

/// Starts to connect to "10.0.0.1 41234". Returns an empty descriptor and sets errno if that is not possible.
FileDescriptor begin_connect(const std::string& address) {
  const size_t space = address.find(' ');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  errno = EINVAL;
  if (space == std::string::npos ||
      getaddrinfo(address.substr(0, space).c_str(), address.substr(space + 1).c_str(), &hints, &list) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  FileDescriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  if (connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) return {};
  return socket;
}

class Connector {
 public:
  Connector(const ProcessGroupOptions& options, const Interface& interface, const std::string& token,
            Rendezvous& rendezvous)
      : options_(options),
        interface_(interface),
        rank_(options.rank),
        token_(token),
        rendezvous_(rendezvous),
        listener_(rank_ + 1 < options.world_size ? listen_on(interface.address, 0, "gloo") : FileDescriptor()),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        sockets_(static_cast<size_t>(options.world_size)),
        next_attempts_(sockets_.size()),
        errors_(sockets_.size()) {
    std::string address = "-";  // the highest rank does not listen: it connects to all others
    if (listener_) {
      watch(listener_, EPOLL_CTL_ADD, EPOLLIN);
      address = str(interface.address, " ", local_port(listener_.get()));
    }
    addresses_ = rendezvous.exchange("address", address);
  }

  Connections run() {
    const Clock::time_point until = std::min(rendezvous_.deadline(), Clock::now() + kConnectTime);
    while (first_missing() >= 0 && Clock::now() < until) {
      connect_to_lower_ranks();
      drop_silent();
      if (!rendezvous_.wait_readable(events_.get(), std::min(until, Clock::now() + kPollInterval))) continue;
      // One event at a time, because handling it may close the connection of another.
      epoll_event event = {};
      if (epoll_wait(events_.get(), &event, 1, 0) != 1) continue;
      if (event.data.fd == listener_.get()) {
        accept_one();
      } else {
        const Place place = handshakes_.find(event.data.fd);
        if (place != handshakes_.end()) advance(place);  // a forked child keeps closed sockets in the set for a moment
      }
    }
    for (const auto& [descriptor, handshake] : handshakes_) {
      if (handshake.rank < 0) drop_log_.warn(handshake.other_end, "no token before all ranks had connected");
    }
    const int missing = first_missing();
    if (missing < 0) return {std::move(sockets_), missing, ""};
    const int shown = job_rank(options_, missing);
    if (Clock::now() >= rendezvous_.deadline()) {
      fail_to_join(options_,
                   str("rendezvous timed out after ", format_seconds(options_.timeout), "\n  rank ", shown,
                       ": no connection over ", interface_.name, " (", interface_.address, ")"),
                   missing);
    }
    const std::string& why = errors_[static_cast<size_t>(missing)];
    return {{}, missing, str("no connection to rank ", shown, why.empty() ? "" : ": ", why)};
  }

 private:
  using Place = std::map<int, Handshake>::iterator;

  int first_missing() const {
    for (size_t rank = 0; rank < sockets_.size(); ++rank) {
      if (static_cast<int>(rank) != rank_ && !sockets_[rank]) return static_cast<int>(rank);
    }
    return -1;
  }

  void watch(const FileDescriptor& socket, int operation, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.fd = socket.get();
    TANDEM_CHECK(IoError, epoll_ctl(events_.get(), operation, socket.get(), &event) == 0,
                 "gloo: epoll_ctl failed: ", std::strerror(errno));
  }

  Place begin(Handshake handshake, uint32_t events) {
    watch(handshake.socket, EPOLL_CTL_ADD, events);
    return handshakes_.emplace(handshake.socket.get(), std::move(handshake)).first;
  }

  void connect_to_lower_ranks() {
    for (int rank = 0; rank < rank_; ++rank) {
      Clock::time_point& next = next_attempts_[static_cast<size_t>(rank)];
      if (next > Clock::now()) continue;
      FileDescriptor socket = begin_connect(addresses_[static_cast<size_t>(rank)]);
      if (!socket) {
        retry_later(rank, std::strerror(errno));
        continue;
      }
      next = Clock::time_point::max();
      begin({.socket = std::move(socket), .rank = rank}, EPOLLOUT);
    }
  }

  void retry_later(int rank, const std::string& why) {
    errors_[static_cast<size_t>(rank)] = why;
    next_attempts_[static_cast<size_t>(rank)] = Clock::now() + kRetryInterval;
  }

  void accept_one() {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_full && !drop_oldest("no file descriptors are left")) std::this_thread::sleep_for(kPollInterval);
      return;
    }
    // Fewer than sockets_.size() of them are connections of ranks.
    if (handshakes_.size() >= kMaxStrangers + sockets_.size()) drop_oldest("too many connections without a token");
    // The token may already have arrived.
    advance(begin({.socket = std::move(socket), .other_end = address}, EPOLLIN));
  }

  bool drop_oldest(const std::string& why) {
    const auto age = [](const auto& entry) { return std::pair(entry.second.rank >= 0, entry.second.begin); };
    const Place oldest = std::min_element(handshakes_.begin(), handshakes_.end(),
                                          [&](const auto& a, const auto& b) { return age(a) < age(b); });
    if (oldest == handshakes_.end() || oldest->second.rank >= 0) return false;
    reject(oldest, why);
    return true;
  }

  void drop_silent() {
    for (Place place = handshakes_.begin(); place != handshakes_.end();) {
      const Place next = std::next(place);
      const Handshake& handshake = place->second;
      if (handshake.rank < 0 && Clock::now() >= handshake.begin + kHelloTime) {
        reject(place, str("no token within ", format_seconds(kHelloTime)));
      }
      place = next;
    }
  }

  void reject(Place place, const std::string& why) {
    const Handshake& handshake = place->second;
    if (handshake.rank >= 0) {
      retry_later(handshake.rank, why);
    } else {
      drop_log_.warn(handshake.other_end, why);
    }
    handshakes_.erase(place);
  }

  bool say_hello(Handshake& handshake) {
    Hello hello;
    hello.rank = rank_;
    token_.copy(hello.token.data(), hello.token.size());
    handshake.said_hello = true;
    // The message fits into the buffer of a new connection, so sending fails only if the connection is closed.
    return send(handshake.socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello));
  }

  void advance(Place place) {
    Handshake& handshake = place->second;
    const int fd = handshake.socket.get();
    if (handshake.rank >= 0 && !handshake.said_hello) {
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0 || !say_hello(handshake)) return reject(place, std::strerror(error != 0 ? error : errno));
      watch(handshake.socket, EPOLL_CTL_MOD, EPOLLIN);
      return;
    }
    // Reads at most one Hello: the bytes after it are frames.
    char* const bytes = reinterpret_cast<char*>(&handshake.received);
    const ssize_t n = recv(fd, bytes + handshake.num_received, sizeof(Hello) - handshake.num_received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return reject(place, n == 0 ? "it closed the connection without a token" : std::strerror(errno));
    handshake.num_received += static_cast<size_t>(n);
    if (handshake.num_received < sizeof(Hello)) return;

    const Hello& hello = handshake.received;
    const bool is_expected = handshake.rank >= 0
                                 ? hello.rank == handshake.rank
                                 : hello.rank > rank_ && static_cast<size_t>(hello.rank) < sockets_.size();
    const bool knows_token = wire::equal_constant_time({hello.token.data(), hello.token.size()}, token_);
    if (hello.magic != kHelloMagic || !knows_token || !is_expected) return reject(place, "wrong token");
    if (!handshake.said_hello && !say_hello(handshake)) return reject(place, std::strerror(errno));
    watch(handshake.socket, EPOLL_CTL_DEL, 0);
    sockets_[static_cast<size_t>(hello.rank)] = std::move(handshake.socket);
    handshakes_.erase(place);
  }

  const ProcessGroupOptions& options_;
  const Interface& interface_;
  const int rank_;
  const std::string& token_;
  Rendezvous& rendezvous_;
  const FileDescriptor listener_;
  const FileDescriptor events_;
  std::vector<FileDescriptor> sockets_;           // by rank: connections whose other end has sent the token
  std::vector<Clock::time_point> next_attempts_;  // by rank; only lower ranks are used
  std::vector<std::string> errors_;               // by rank: error of the last attempt
  std::vector<std::string> addresses_;            // by rank
  std::map<int, Handshake> handshakes_;           // by descriptor
  DropLog drop_log_{"gloo"};
};

}  // namespace

Connections connect_ranks(const ProcessGroupOptions& options, const Interface& interface, const std::string& token,
                          Rendezvous& rendezvous) {
  return Connector(options, interface, token, rendezvous).run();
}

}}}  // namespace tandem::v0::distributed::network
