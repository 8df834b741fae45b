#include <tandem/distributed/backends/gloo/connected_pairs.h>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

namespace {

namespace tcp = ::gloo::transport::tcp;

constexpr int kMaxAttempts = 100;  // an attempt fails if another program connects first and leaves immediately
constexpr int kAcceptMilliseconds = 1000;

/// Gloo's address: a sockaddr_storage, then a number that is not part of a socket address.
sockaddr_storage as_sockaddr(const std::vector<char>& address) {
  sockaddr_storage result = {};
  std::memcpy(&result, address.data(), std::min(address.size(), sizeof(result)));
  return result;
}

socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// Whether the local end of the socket has that address.
bool is_bound_to(int fd, const sockaddr_storage& address) {
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 && size == size_of(address) &&
         std::memcmp(&own, &address, size) == 0;
}

/// The first file descriptor of this process for which `fits` returns true, or -1.
int find_descriptor(FunctionRef<bool(int fd)> fits) {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int found = -1;
  for (const dirent* entry; found < 0 && (entry = readdir(folder)) != nullptr;) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fits(fd)) found = fd;
  }
  closedir(folder);
  return found;
}

/// Runs a function once on the thread of a device.
class DeviceTask final : public tcp::Handler {
 public:
  DeviceTask(tcp::Device& device, std::function<void()> f)
      : device_(device), task_(std::move(f)), begin_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    device_.registerDescriptor(begin_.get(), EPOLLIN, this);
  }
  ~DeviceTask() override { device_.unregisterDescriptor(begin_.get(), this); }  // waits until no handleEvents runs

  /// Throws what the function throws.
  void wait() { task_.get_future().get(); }

  void handleEvents(int) override {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(begin_.get(), &count, sizeof(count));
    task_();
  }

 private:
  tcp::Device& device_;
  std::packaged_task<void()> task_;
  const FileDescriptor begin_;
};

/// Makes a new pair, which is listening, use `connection`. Must run on the device's thread. Returns false if the pair
/// cannot be used because the connection that it accepted had already closed.
bool hand_over(tcp::Device& device, ::gloo::transport::Pair& pair, const FileDescriptor& connection) {
  auto& handler = dynamic_cast<tcp::Handler&>(pair);
  const sockaddr_storage address = as_sockaddr(pair.address().bytes());
  pollfd listener = {find_descriptor([&](int fd) { return is_bound_to(fd, address); }), POLLIN, 0};
  // There must be a connection to accept; it need not be this one.
  const FileDescriptor first(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  connect(first.get(), reinterpret_cast<const sockaddr*>(&address), size_of(address));
  TANDEM_CHECK(
      IoError, listener.fd >= 0 && poll(&listener, 1, kAcceptMilliseconds) == 1,
      "gloo: cannot hand over a connection: this host does not accept connections to itself; check its firewall");
  bool is_connected = true;
  try {
    handler.handleEvents(EPOLLIN);  // accepts, and closes the listening socket
  } catch (const ::gloo::EnforceNotMet&) {
    is_connected = false;  // Gloo could not query the address of the other end
  }
  const int accepted = find_descriptor([&](int fd) { return is_bound_to(fd, address); });
  if (accepted < 0) return false;
  if (is_connected) {
    TANDEM_CHECK(IoError, dup3(connection.get(), accepted, O_CLOEXEC) == accepted,
                 "gloo: dup3 failed: ", std::strerror(errno));
  }
  device.registerDescriptor(accepted, EPOLLIN, &handler);  // also if it is not connected: its destructor relies on it
  return is_connected;
}

}  // namespace

void make_connected_pairs(::gloo::transport::Device& device, ::gloo::transport::Context& context,
                          const std::vector<FileDescriptor>& sockets,
                          FunctionRef<void(int rank, ::gloo::transport::Pair& pair)> prepare) {
  auto& tcp_device = static_cast<tcp::Device&>(device);
  DeviceTask task(tcp_device, [&] {
    for (int rank = 0; rank < static_cast<int>(sockets.size()); ++rank) {
      const FileDescriptor& socket = sockets[static_cast<size_t>(rank)];
      if (!socket) continue;
      int attempts = 0;
      while (!hand_over(tcp_device, *context.createPair(rank), socket)) {
        TANDEM_CHECK(IoError, ++attempts < kMaxAttempts,
                     "gloo: cannot hand over a connection: other programs connected to its port and left ",
                     kMaxAttempts, " times");
      }
      prepare(rank, *context.getPair(rank));
    }
  });
  task.wait();
}

}}}  // namespace tandem::v0::distributed::gloo
