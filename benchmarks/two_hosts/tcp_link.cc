#include <tandem/benchmarks/two_hosts/tcp_link.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <tandem/base/error.h>

namespace tandem::benchmarks {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDuration = std::chrono::seconds(2);
constexpr size_t kBufferBytes = 256 << 10;

void check(bool condition, const char* what) {
  TANDEM_CHECK(IoError, condition, "tcp_link: ", what, ": ", std::strerror(errno));
}

sockaddr_in address_of(in_addr host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = host;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

TcpStream::~TcpStream() {
  if (fd_ >= 0) close(fd_);
}

TcpListener::TcpListener(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int one = 1;
  check(socket_.fd() >= 0, "socket");
  setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const sockaddr_in address = address_of({htonl(INADDR_ANY)}, port);
  check(bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  check(listen(socket_.fd(), 1) == 0, "listen");
}

TcpStream TcpListener::accept() const {
  TcpStream stream(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  check(stream.fd() >= 0, "accept");
  return stream;
}

TcpStream connect_to(const std::string& address, int port) {
  in_addr host{};
  TANDEM_CHECK(IoError, inet_pton(AF_INET, address.c_str(), &host) == 1, "tcp_link: '", address,
               "' is not an IPv4 address");
  TcpStream stream(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(stream.fd() >= 0, "socket");
  const sockaddr_in to = address_of(host, port);
  check(connect(stream.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0, "connect");
  return stream;
}

double measure_receive_rate(const TcpStream& stream) {
  std::thread sender([&] {
    const std::vector<char> buffer(kBufferBytes);
    const auto end = Clock::now() + kDuration;
    while (Clock::now() < end && send(stream.fd(), buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0) {
    }
    shutdown(stream.fd(), SHUT_WR);
  });
  std::vector<char> buffer(kBufferBytes);
  const ssize_t first = recv(stream.fd(), buffer.data(), buffer.size(), 0);
  const auto begin = Clock::now();
  double received = 0;
  ssize_t n = first;
  while (n > 0) {
    n = recv(stream.fd(), buffer.data(), buffer.size(), 0);
    if (n > 0) received += static_cast<double>(n);
  }
  const auto end = Clock::now();
  sender.join();
  check(n == 0, "recv");
  return received / std::chrono::duration<double>(end - begin).count();
}

void BackgroundTraffic::start(int64_t num_bytes) {
  const auto transfer = [this, num_bytes](auto call, const char* what) {
    return std::async(std::launch::async, [this, left = static_cast<size_t>(num_bytes), call, what]() mutable {
      std::vector<char> buffer(kBufferBytes);
      while (left > 0) {
        const ssize_t n = call(stream_.fd(), buffer.data(), std::min(left, kBufferBytes), MSG_NOSIGNAL);
        check(n > 0, what);
        left -= static_cast<size_t>(n);
      }
    });
  };
  sending_ = transfer(send, "send");
  receiving_ = transfer(recv, "recv");
}

void BackgroundTraffic::wait() {
  sending_.get();
  receiving_.get();
}

}  // namespace tandem::benchmarks
