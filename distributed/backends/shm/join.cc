#include <tandem/distributed/backends/shm/join.h>

#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

namespace {

using Clock = Rendezvous::Clock;

constexpr size_t kTokenBytes = 32;

std::string random_token() { return wire::token_to_hex(wire::random_token()).substr(0, kTokenBytes); }

/// Constructs the rank's header, so that peers find it initialized. Rings and channels cost no memory until they are
/// used.
void initialise(std::byte* segment, const Layout& layout) {
  std::memset(segment, 0, layout.staging);  // so that small collectives meet no page fault
  auto* header = new (segment) SegmentHeader;
  sched_getaffinity(0, sizeof(header->cores), &header->cores);
  struct stat pids = {};
  if (stat("/proc/self/ns/pid", &pids) == 0) header->pid_namespace = pids.st_ino;
  header->pid = getpid();
}

// --- ranks that are threads ---

/// Mappings offered to other threads of this process, by token. An offer is weak: it ends with the rank that made it.
struct Offers {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Mapping>> by_token;
};

/// Global, because other threads find an offer only by its token: the store transports only text.
Offers& offers() {
  static Offers instance;
  return instance;
}

/// Maps the memory of all ranks, which are threads of this process.
std::shared_ptr<Mapping> map_all(int world_size, const Layout& layout) {
  auto mapping = std::make_shared<Mapping>(static_cast<size_t>(world_size), layout.total);
  for (std::byte*& segment : mapping->segments) segment = map_memory(-1, layout.total, true);
  mapping->doorbells = map_memory(-1, mapping->segments.size() * page_bytes(), true);
  return mapping;
}

std::shared_ptr<Mapping> join_threads(const ProcessGroupOptions& options, const Layout& layout,
                                      Rendezvous& rendezvous) {
  std::shared_ptr<Mapping> mapping = options.rank == 0 ? map_all(options.world_size, layout) : nullptr;
  const std::string token = options.rank == 0 ? random_token() : rendezvous.get("offer", 0);
  {
    std::lock_guard lock(offers().mutex);
    const auto place = offers().by_token.try_emplace(token, mapping).first;
    mapping = place->second.lock();
    if (mapping == nullptr) offers().by_token.erase(place);
  }
  if (options.rank == 0) rendezvous.set("offer", token);
  if (mapping == nullptr) fail_to_join(options, "rank 0 is not a thread of this process, or has already failed", 0);
  initialise(mapping->segments[static_cast<size_t>(options.rank)], layout);
  rendezvous.barrier();
  std::lock_guard lock(offers().mutex);
  offers().by_token.erase(token);
  return mapping;
}

// --- ranks that are processes ---

bool peer_is_same_user(const FileDescriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/// First message of a joining rank, and the answer of rank 0.
struct Hello {
  int32_t rank = -1;
  std::array<char, kTokenBytes> token = {};
};

constexpr std::chrono::milliseconds kAcceptPause{10};
// An unknown connection that sends nothing for this time is closed.
constexpr std::chrono::milliseconds kHelloTime{1000};
constexpr size_t kMaxDescriptors = 250;  // the kernel's limit for one message is 253

bool send_hello(const FileDescriptor& socket, const Hello& hello, const std::vector<int>& descriptors) {
  iovec part = {const_cast<Hello*>(&hello), sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  const size_t payload = sizeof(int) * descriptors.size();
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(payload);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(payload);
  std::memcpy(CMSG_DATA(head), descriptors.data(), payload);
  return sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello));
}

bool receive_hello(const FileDescriptor& socket, Hello& hello, std::vector<FileDescriptor>& descriptors) {
  iovec part = {&hello, sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); size > 0 && head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return size == static_cast<ssize_t>(sizeof(hello));
}

Hello make_hello(const std::string& token, int rank) {
  Hello hello = {.rank = rank};
  token.copy(hello.token.data(), hello.token.size());
  return hello;
}

bool has_token(const Hello& hello, const std::string& token) {
  return std::string_view(hello.token.data(), hello.token.size()) == token;
}

/// Rank 0: collects the segments of all ranks, and sends all segments and the doorbells to every rank. Returns the
/// segments in rank order, then the doorbells.
std::vector<FileDescriptor> exchange_as_host(const ProcessGroupOptions& options, FileDescriptor segment,
                                             FileDescriptor doorbells, Rendezvous& rendezvous) {
  // SEQPACKET: one message is one record, descriptors included.
  FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // Binding to the bare family makes the kernel choose a free abstract name.
  if (listener.get() < 0 || bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0 ||
      listen(listener.get(), options.world_size) != 0) {
    fail_to_join(options, str("cannot listen on a Unix socket: ", std::strerror(errno)));
  }
  socklen_t size = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const std::string name(address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  const std::string token = random_token();
  rendezvous.set("host", str(host_identity(options), " ", name, " ", token));

  std::vector<FileDescriptor> files(static_cast<size_t>(options.world_size));
  files[0] = std::move(segment);
  std::vector<FileDescriptor> peers;
  while (peers.size() + 1 < files.size()) {
    std::vector<int> missing;
    for (size_t rank = 0; rank < files.size(); ++rank) {
      if (files[rank].get() < 0) missing.push_back(static_cast<int>(rank));
    }
    if (!rendezvous.wait_readable(listener.get())) rendezvous.fail_for_missing(missing);
    FileDescriptor peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0) std::this_thread::sleep_for(kAcceptPause);  // without a free descriptor it stays readable
    Hello hello;
    std::vector<FileDescriptor> received;
    if (peer.get() < 0 || !peer_is_same_user(peer) ||
        !rendezvous.wait_readable(peer.get(), Clock::now() + kHelloTime) || !receive_hello(peer, hello, received) ||
        !has_token(hello, token) || received.size() != 1 || hello.rank < 1 || hello.rank >= options.world_size ||
        files[static_cast<size_t>(hello.rank)].get() >= 0) {
      continue;
    }
    files[static_cast<size_t>(hello.rank)] = std::move(received[0]);
    peers.push_back(std::move(peer));
  }
  files.push_back(std::move(doorbells));
  std::vector<int> descriptors;
  for (const FileDescriptor& file : files) descriptors.push_back(file.get());
  for (const FileDescriptor& peer : peers) send_hello(peer, make_hello(token, 0), descriptors);
  return files;
}

/// Other ranks: sends the own segment to rank 0 and receives all files.
std::vector<FileDescriptor> exchange_with_rank_0(const ProcessGroupOptions& options, const FileDescriptor& segment,
                                                 Rendezvous& rendezvous) {
  const std::string text = rendezvous.get("host", 0);
  const size_t second = text.rfind(' ');
  const size_t first = text.rfind(' ', second - 1);  // a host's name may contain spaces
  if (text.substr(0, first) != host_identity(options)) {
    fail_to_join(options, "rank 0 is on another host; the shm backend requires all ranks on one host", 0);
  }
  const std::string name = text.substr(first + 1, second - first - 1);
  const std::string token = text.substr(second + 1);

  FileDescriptor host(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof(address.sun_path) - 1));
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (host.get() < 0 || connect(host.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    const int error = errno;
    rendezvous.throw_if_rank_ended();
    fail_to_join(options, str("cannot connect to the socket of rank 0: ", std::strerror(error)), 0);
  }
  if (!peer_is_same_user(host)) fail_to_join(options, "the socket of rank 0 belongs to another user", 0);
  const bool sent = send_hello(host, make_hello(token, options.rank), {segment.get()});
  if (sent && !rendezvous.wait_readable(host.get())) rendezvous.fail_for_missing({0});
  Hello answer;
  std::vector<FileDescriptor> files;
  if (!sent || !receive_hello(host, answer, files) || !has_token(answer, token) ||
      files.size() != static_cast<size_t>(options.world_size) + 1) {
    rendezvous.throw_if_rank_ended();
    fail_to_join(options, "rank 0 did not complete the rendezvous: it failed, exited, or waits for a missing rank", 0);
  }
  return files;
}

std::shared_ptr<Mapping> join_processes(const ProcessGroupOptions& options, const Layout& layout,
                                        Rendezvous& rendezvous) {
  const size_t world_size = static_cast<size_t>(options.world_size);
  if (world_size + 1 > kMaxDescriptors)
    fail_to_join(options, str("the shm backend supports at most ", kMaxDescriptors - 1, " ranks"));
  auto mapping = std::make_shared<Mapping>(world_size, layout.total);
  const size_t self = static_cast<size_t>(options.rank);

  FileDescriptor segment = create_shared_file("tandem-segment", layout.total);
  mapping->segments[self] = map_memory(segment.get(), layout.total, true);
  initialise(mapping->segments[self], layout);
  seal_writes(segment);

  std::vector<FileDescriptor> files;
  if (options.rank == 0) {
    FileDescriptor doorbells = create_shared_file("tandem-doorbells", world_size * page_bytes());
    files = exchange_as_host(options, std::move(segment), std::move(doorbells), rendezvous);
  } else {
    files = exchange_with_rank_0(options, segment, rendezvous);
  }
  mapping->doorbells = map_memory(files[world_size].get(), world_size * page_bytes(), true);
  for (size_t rank = 0; rank < world_size; ++rank) {
    if (rank != self) mapping->segments[rank] = map_memory(files[rank].get(), layout.total, false);
  }
  rendezvous.barrier();
  return mapping;
}

}  // namespace

std::shared_ptr<Mapping> join(const ProcessGroupOptions& options, const Layout& layout) {
  if (options.world_size == 1) {
    auto mapping = map_all(1, layout);
    initialise(mapping->segments[0], layout);
    return mapping;
  }
  Rendezvous rendezvous(options, "shm");
  auto mapping =
      options.thread_ranks ? join_threads(options, layout, rendezvous) : join_processes(options, layout, rendezvous);
  rendezvous.finish();
  return mapping;
}

}}}  // namespace tandem::v0::distributed::shm
