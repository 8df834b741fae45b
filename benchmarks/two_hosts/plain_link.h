// What a link carries: plain TCP streams, nothing of tandem.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <utility>

namespace tandem::benchmarks {

/// A TCP socket, closed at the end.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {}
  Stream(Stream&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  int fd() const { return fd_; }

 private:
  int fd_;
};

class Listener {
 public:
  /// Throws IoError where the port is taken.
  explicit Listener(int port);
  Stream accept() const;

 private:
  Stream socket_;
};

/// Throws IoError.
Stream connect_to(const std::string& address, int port);

/// Sends for two seconds while the other side does the same; returns the bytes per second that arrived here.
double exchange_plainly(const Stream& stream);

/// Streams beside what the caller does.
class PlainTraffic {
 public:
  explicit PlainTraffic(Stream stream) : stream_(std::move(stream)) {}
  /// Sends so many bytes and receives as many; the other side does the same.
  void start(int64_t num_bytes);
  /// Until that is over.  Throws IoError.
  void wait();

 private:
  Stream stream_;
  std::future<void> sending_;
  std::future<void> receiving_;
};

}  // namespace tandem::benchmarks
