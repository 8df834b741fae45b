// Plain TCP streams, without tandem: measure the payload rate of a link and generate background traffic.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <utility>

namespace tandem::benchmarks {

/// Owns a connected TCP socket.
class TcpStream {
 public:
  explicit TcpStream(int fd) : fd_(fd) {}
  TcpStream(TcpStream&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  TcpStream& operator=(TcpStream&&) = delete;
  ~TcpStream();
  int fd() const { return fd_; }

 private:
  int fd_;
};

class TcpListener {
 public:
  /// Throws IoError if the port is in use.
  explicit TcpListener(int port);
  TcpStream accept() const;

 private:
  TcpStream socket_;
};

/// Connects to a TcpListener. Throws IoError.
TcpStream connect_to(const std::string& address, int port);

/// Sends for two seconds while the peer calls the same function; returns the received bytes per second.
double measure_receive_rate(const TcpStream& stream);

/// Sends and receives on two threads in the background.
class BackgroundTraffic {
 public:
  explicit BackgroundTraffic(TcpStream stream) : stream_(std::move(stream)) {}
  /// Starts sending `num_bytes` and receiving as many; the peer must call start() with the same number.
  void start(int64_t num_bytes);
  /// Waits until all bytes are sent and received. Throws IoError.
  void wait();

 private:
  TcpStream stream_;
  std::future<void> sending_;
  std::future<void> receiving_;
};

}  // namespace tandem::benchmarks
