// Socket functions shared by the store's client and server. Private to distributed/.
#pragma once

#include <chrono>
#include <string>

#include <tandem/base/macros.h>

struct tcp_info;

namespace tandem { inline namespace v0 { namespace distributed {

/// Owns a file descriptor, which is never 0, 1 or 2 (above_standard).
class TANDEM_API FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

/// The address on which rank 0 should listen so that ranks that connect to `host` reach it: `host`, or "", which means
/// all addresses of this machine. It is "" if the name is the loopback address on this machine but another address
/// elsewhere, if it does not resolve yet, or if the address reaches this machine by address translation.
TANDEM_API std::string listening_address(const std::string& host);

/// "\n  ADDRESS is a loopback address, which other hosts cannot reach", or "": a line for errors.
TANDEM_API std::string loopback_hint(const std::string& host);

/// A nonblocking listening socket. "" means all addresses of this machine. Throws IoError that begins with `owner` and
/// names the address.
TANDEM_API FileDescriptor listen_on(const std::string& host, int port, const char* owner = "store");
TANDEM_API int local_port(int fd);

/// Whether the peer of a TCP connection is the socket itself. That happens if no program listens at a port of this
/// machine and the system chooses the same port for the connecting socket.
TANDEM_API bool is_connected_to_itself(int fd);

/// A nonblocking connection. Retries until `deadline`, because the host may start later. Throws CommError naming the
/// address and the last error; at once if it is a loopback address and the loopback interface is down.
TANDEM_API FileDescriptor connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline);

/// Time without an answer after which a peer's machine counts as lost.
inline constexpr std::chrono::milliseconds kLostAfter{10000};
/// Sends small frames without delay, and enables keep-alive: the loss of a peer's machine on an idle connection is
/// detected after kLostAfter.
TANDEM_API void tune_connection(int fd);
/// Whether the peer's machine has received all sent data.
TANDEM_API bool is_delivered(int fd);

/// Time since the last answer of the peer's machine. On an idle connection it answers every four seconds.
TANDEM_API std::chrono::milliseconds silence(int fd);

/// Detects a peer whose machine was lost while sent data was unacknowledged. A program that does not read for long, for
/// example in a debugger, counts as alive, because its machine still answers.
class TANDEM_API SilenceWatch {
 public:
  static constexpr std::chrono::seconds kInterval{1};
  /// `longest`: a silence that no live machine reaches, on a connection that was set up by tune_connection.
  explicit SilenceWatch(std::chrono::milliseconds longest = kLostAfter - kInterval) : longest_(longest) {}
  /// Call it every kInterval, or less often.
  bool is_lost(int fd);
  /// Like is_lost(fd), for the kernel's information at time `now`.
  bool is_lost(const tcp_info& info, std::chrono::steady_clock::time_point now);

 private:
  std::chrono::milliseconds longest_;
  std::chrono::steady_clock::time_point last_look_;
  int retransmits_ = 0;  // at the last check with an answer
  int unanswered_ = 0;   // consecutive checks with unanswered retransmissions or probes
};

/// Milliseconds until `deadline` for poll(), rounded up, at least 0; -1 if there is no deadline.
TANDEM_API int milliseconds_until(std::chrono::steady_clock::time_point deadline);

}}}  // namespace tandem::v0::distributed
