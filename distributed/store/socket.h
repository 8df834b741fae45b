// The few socket calls that the store's two ends share.  Private to distributed/.
#pragma once

#include <chrono>
#include <string>

#include <tandem/base/macros.h>

namespace tandem::inline v0::distributed {

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

/// A non-blocking listening socket.  Throws IoError naming the address.
TANDEM_API FileDescriptor listen_on(const std::string& host, int port);
TANDEM_API int local_port(int fd);

/// A non-blocking connection; tries again until `deadline`, because the host may start later.  Throws CommError naming
/// the address and the last reason.
TANDEM_API FileDescriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout);

/// No delay for small frames, and a peer whose machine vanished is noticed within ten seconds.
TANDEM_API void tune_connection(int fd);

/// Milliseconds until `deadline` for poll(), rounded up, at least 0.
TANDEM_API int milliseconds_until(std::chrono::steady_clock::time_point deadline);

}  // namespace tandem::inline v0::distributed
