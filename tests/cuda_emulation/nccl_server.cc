#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>

#include <tandem/base/half.h>
#include <tandem/tests/cuda_emulation/nccl_server.h>

namespace cuda_emulation {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = NcclRequest::Kind;

/// A collective that at least one rank has called.
struct Call {
  std::vector<NcclRequest> requests;
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
  int num_called = 0;
  int num_left = 0;  // ranks that have not received their output
  bool done = false;
};

class Server {
 public:
  explicit Server(int listener) : listener_(listener) {}
  /// Serves the connection of one rank; returns when it is closed.
  void serve(int connection);

 private:
  void answer(int connection, uint64_t number, const NcclRequest& request, Bytes input);
  bool join_barrier(int connection, const NcclRequest& request, const Bytes& input);
  bool wait_for(std::unique_lock<std::mutex>& lock, int connection, const std::function<bool()>& ready);
  void finish(Call& call);

  const int listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<NcclBarrier, int> arrived_;                                                 // number of ranks
  std::map<uint64_t, Call> calls_;                                                     // by sequence number
  std::map<std::pair<int, int>, std::deque<std::pair<NcclRequest, Bytes>>> messages_;  // by sender and receiver
};

void Server::serve(int connection) {
  NcclRequest request;
  uint64_t number = 0;
  bool joins = false, has_left = false;
  while (read_all(connection, &request, sizeof(request))) {
    Bytes input(request.num_bytes);
    if (!read_all(connection, input.data(), input.size())) break;
    if (request.kind == Kind::kBarrier) {
      joins = true;
      has_left = has_left || join_barrier(connection, request, input);
    } else {
      const bool is_message = request.kind == Kind::kSend || request.kind == Kind::kRecv;
      answer(connection, is_message ? 0 : ++number, request, std::move(input));
    }
  }
  std::lock_guard lock(mutex_);
  if (joins && !has_left) ++arrived_[NcclBarrier::goodbye()];
  changed_.notify_all();
}

/// Whether the rank has left.
bool Server::join_barrier(int connection, const NcclRequest& request, const Bytes& input) {
  std::vector<NcclBarrier> barriers(input.size() / sizeof(NcclBarrier));
  std::memcpy(barriers.data(), input.data(), input.size());
  const auto is_there = [&](const NcclBarrier& barrier) {
    return arrived_[barrier] >= (barrier.from == NcclBarrier::kAll ? request.num_ranks : 2);
  };
  std::unique_lock lock(mutex_);
  for (const NcclBarrier& barrier : barriers) ++arrived_[barrier];
  // All ranks are connected. Close the listener only once, because its descriptor may be reused.
  if (barriers[0] == NcclBarrier::hello() && is_there(barriers[0])) shutdown(listener_, SHUT_RDWR);
  changed_.notify_all();
  if (wait_for(lock, connection, [&] { return std::all_of(barriers.begin(), barriers.end(), is_there); })) {
    lock.unlock();
    const uint64_t none = 0;
    write_all(connection, &none, sizeof(none));
  }
  return barriers[0] == NcclBarrier::goodbye();
}

/// False if the connection is closed. A rank that waits for an exited rank waits until it aborts.
bool Server::wait_for(std::unique_lock<std::mutex>& lock, int connection, const std::function<bool()>& ready) {
  char none;
  while (!ready()) {
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    lock.unlock();
    const ssize_t peeked = recv(connection, &none, 1, MSG_PEEK | MSG_DONTWAIT);
    lock.lock();
    if (peeked == 0) return false;
  }
  return true;
}

void Server::answer(int connection, uint64_t number, const NcclRequest& request, Bytes input) {
  const int rank = request.rank;
  std::unique_lock lock(mutex_);
  if (request.kind == Kind::kSend) {
    messages_[{rank, request.peer}].emplace_back(request, std::move(input));
    changed_.notify_all();
    return;
  }
  Bytes output;
  if (request.kind == Kind::kRecv) {
    auto& queue = messages_[{request.peer, rank}];
    const auto fits = [&] {
      return queue.front().first.count == request.count && queue.front().first.type == request.type;
    };
    if (!wait_for(lock, connection, [&] { return !queue.empty() && fits(); })) return;
    output = std::move(queue.front().second);
    queue.pop_front();
  } else {
    Call& call = calls_[number];
    const auto n = static_cast<size_t>(request.num_ranks);
    if (call.requests.empty()) {
      call.requests.resize(n);
      call.inputs.resize(n);
      call.outputs.resize(n);
      call.num_left = request.num_ranks;
    }
    const auto own = static_cast<size_t>(rank);
    call.requests[own] = request;
    call.inputs[own] = std::move(input);
    if (++call.num_called == request.num_ranks) finish(call);
    changed_.notify_all();
    if (!wait_for(lock, connection, [&] { return call.done; })) return;
    output = std::move(call.outputs[own]);
    if (--call.num_left == 0) calls_.erase(number);
  }
  lock.unlock();
  const uint64_t num_bytes = output.size();
  if (write_all(connection, &num_bytes, sizeof(num_bytes))) write_all(connection, output.data(), output.size());
}

/// Computes the outputs of a collective that all ranks have called, unless the calls do not match.
void Server::finish(Call& call) {
  const NcclRequest& first = call.requests[0];
  for (const NcclRequest& other : call.requests) {
    if (other.kind != first.kind || other.type != first.type || other.op != first.op || other.peer != first.peer ||
        other.count != first.count || other.captured != first.captured) {
      return;
    }
  }
  const size_t n = call.inputs.size();
  const auto type = static_cast<ncclDataType_t>(first.type);
  const auto op = static_cast<ncclRedOp_t>(first.op);
  const auto reduced = [&] {
    Bytes sum = call.inputs[0];
    const size_t count = sum.size() / size_of(type);
    for (size_t rank = 1; rank < n; ++rank) reduce_into(type, op, count, sum.data(), call.inputs[rank].data());
    if (op == ncclAvg) divide(type, count, static_cast<int>(n), sum.data());
    return sum;
  };
  switch (first.kind) {
    case Kind::kAllReduce: std::fill(call.outputs.begin(), call.outputs.end(), reduced()); break;
    case Kind::kReduce: call.outputs[static_cast<size_t>(first.peer)] = reduced(); break;
    case Kind::kBroadcast:
      std::fill(call.outputs.begin(), call.outputs.end(), call.inputs[static_cast<size_t>(first.peer)]);
      break;
    case Kind::kAllGather: {
      Bytes all;
      for (const Bytes& input : call.inputs) all.insert(all.end(), input.begin(), input.end());
      std::fill(call.outputs.begin(), call.outputs.end(), all);
      break;
    }
    case Kind::kReduceScatter: {
      const Bytes sum = reduced();
      const auto part = static_cast<ptrdiff_t>(sum.size() / n);
      for (size_t rank = 0; rank < n; ++rank) {
        const auto begin = sum.begin() + static_cast<ptrdiff_t>(rank) * part;
        call.outputs[rank].assign(begin, begin + part);
      }
      break;
    }
    default: break;
  }
  call.done = true;
}

sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract socket: no file to delete
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

template <class T, class F>
void each(void* values, const void* others, size_t count, F f) {
  T* a = static_cast<T*>(values);
  const T* b = static_cast<const T*>(others);
  for (size_t i = 0; i < count; ++i) a[i] = static_cast<T>(f(a[i], b[i]));
}

template <class F>
void visit(ncclDataType_t type, F f) {
  switch (type) {
    case ncclInt8: return f(int8_t());
    case ncclUint8: return f(uint8_t());
    case ncclInt32: return f(int32_t());
    case ncclInt64: return f(int64_t());
    case ncclFloat16: return f(tandem::Half());
    case ncclBfloat16: return f(tandem::BFloat16());
    case ncclFloat32: return f(float());
    case ncclFloat64: return f(double());
  }
}

/// The accumulation type of T.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

}  // namespace

size_t size_of(ncclDataType_t type) {
  size_t size = 0;
  visit(type, [&](auto value) { size = sizeof(value); });
  return size;
}

void reduce_into(ncclDataType_t type, ncclRedOp_t op, size_t count, void* sum, const void* term) {
  visit(type, [&](auto value) {
    using T = decltype(value);
    using W = Wide<T>;
    switch (op) {
      case ncclSum:
      case ncclAvg: return each<T>(sum, term, count, [](W a, W b) { return static_cast<W>(a + b); });
      case ncclProd: return each<T>(sum, term, count, [](W a, W b) { return static_cast<W>(a * b); });
      // NaN is ignored, as by fmax and fmin on devices.
      case ncclMax: return each<T>(sum, term, count, [](W a, W b) { return a != a || a < b ? b : a; });
      case ncclMin: return each<T>(sum, term, count, [](W a, W b) { return a != a || b < a ? b : a; });
    }
  });
}

void divide(ncclDataType_t type, size_t count, int n, void* values) {
  visit(type, [&](auto value) {
    using T = decltype(value);
    each<T>(values, values, count,
            [n](Wide<T> a, Wide<T>) { return static_cast<Wide<T>>(a / static_cast<Wide<T>>(n)); });
  });
}

bool write_all(int fd, const void* bytes, size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = send(fd, next, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

bool read_all(int fd, void* bytes, size_t count) {
  char* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t n = recv(fd, next, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

std::string start_nccl_server() {
  static std::atomic<int> count{0};
  std::random_device random;
  const std::string name = "tandem_nccl_" + std::to_string(getpid()) + "_" + std::to_string(count++) + "_" +
                           std::to_string(random()) + "_" + std::to_string(random());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  if (listener < 0 || bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener, 64) != 0) {
    if (listener >= 0) close(listener);
    return "";
  }
  std::thread([listener, server = std::make_shared<Server>(listener)] {
    for (;;) {
      const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0 && errno == EINTR) continue;
      if (connection < 0) {
        close(listener);
        return;
      }
      std::thread([connection, server] {
        server->serve(connection);
        close(connection);
      }).detach();
    }
  }).detach();
  return name;
}

int connect_to_nccl_server(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace cuda_emulation
