// The few socket calls that the store's two ends share. Private to distributed/.
#pragma once

#include <chrono>
#include <string>

#include <tandem/base/macros.h>

struct tcp_info;

namespace tandem { inline namespace v0 { namespace distributed {

/// Owns a file descriptor.
class TANDEM_API FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
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

/// Where rank 0 is to listen so that ranks that connect to `host` reach it: `host`, or "", which is every address of
/// this machine, where the name stands for the loopback here and for something else elsewhere, or for an address that
/// leads here by translation.
TANDEM_API std::string listening_address(const std::string& host);

/// A non-blocking listening socket; "" is every address of this machine. Throws IoError, which begins with `owner` and
/// names the address.
TANDEM_API FileDescriptor listen_on(const std::string& host, int port, const char* owner = "store");
TANDEM_API int local_port(int fd);

/// Whether the peer of a TCP connection is the socket itself. That happens when nothing listens at a port of this
/// machine and the system chooses the same port for the connecting socket.
TANDEM_API bool is_connected_to_itself(int fd);

/// A non-blocking connection; tries again until `deadline`, because the host may start later. Throws CommError naming
/// the address and the last reason.
TANDEM_API FileDescriptor connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline);

/// When a peer whose machine is silent counts as lost.
inline constexpr std::chrono::milliseconds kLostAfter{10000};
/// No delay for small frames, and a peer whose machine vanished while nothing was on the way is noticed after
/// kLostAfter.
TANDEM_API void tune_connection(int fd);
/// Whether the peer's machine has all that was sent.
TANDEM_API bool is_delivered(int fd);

/// Notices a peer whose machine vanished while something was on the way to it, but takes a program for alive that takes
/// nothing for long, as in a debugger: its machine answers.
class TANDEM_API SilenceWatch {
 public:
  static constexpr std::chrono::seconds kInterval{1};
  /// `longest`: the silence, on a connection that tune_connection has seen, that no live machine keeps.
  explicit SilenceWatch(std::chrono::milliseconds longest = kLostAfter - kInterval) : longest_(longest) {}
  /// Called every kInterval, or later.
  bool is_lost(int fd);
  /// The same for what the kernel has said at that time.
  bool is_lost(const tcp_info& info, std::chrono::steady_clock::time_point now);

 private:
  std::chrono::milliseconds longest_;
  std::chrono::steady_clock::time_point last_look_;
  int retransmits_ = 0;  // at the look that heard something last
  int unanswered_ = 0;   // looks in a row at which questions were
};

/// Milliseconds until `deadline` for poll(), rounded up, at least 0; -1 where there is none.
TANDEM_API int milliseconds_until(std::chrono::steady_clock::time_point deadline);

}}}  // namespace tandem::v0::distributed
