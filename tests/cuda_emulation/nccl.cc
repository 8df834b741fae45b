// NCCL's calls.  A communicator has a thread, which joins the others and then runs the streams as far as collectives are queued in
// them, as a GPU does by itself.
#include <nccl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/tests/cuda_emulation/nccl_server.h>
#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation {
namespace {

using Kind = NcclRequest::Kind;

struct Exchange {
  NcclRequest request;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t recv_bytes = 0;
  std::vector<std::byte> bytes = {};  // what goes, then what came
};

/// What outlives the handle: queued tasks have it too.
struct Member {
  int rank = 0;
  int num_ranks = 0;
  int device = 0;
  bool blocking = true;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};

  std::mutex mutex;
  std::condition_variable changed;
  int connection = -1;
  bool stop = false;
  std::deque<std::pair<std::shared_ptr<Stream>, uint64_t>> issued;

  void join(const std::string& server);
  void run(const std::string& server);
  void issue(std::shared_ptr<Stream> stream, uint64_t ticket);
  bool exchange(std::vector<Exchange>& group);
  bool send(const Exchange& e);
  bool receive(Exchange& e);
};

void Member::join(const std::string& server) {
  Exchange hello;
  hello.request = {Kind::kHello, rank, num_ranks, ncclUint8, 0, -1, 0, 0};
  const int fd = connect_to_nccl_server(server);
  {
    std::lock_guard lock(mutex);
    connection = fd;
    if (aborted && fd >= 0) shutdown(fd, SHUT_RDWR);
  }
  state = fd >= 0 && send(hello) && receive(hello) ? ncclSuccess : ncclSystemError;
}

void Member::run(const std::string& server) {
  join(server);
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || !issued.empty(); });
    if (issued.empty()) return;
    const auto [stream, ticket] = issued.front();
    issued.pop_front();
    lock.unlock();
    {
      cuda_emulation::Call call;
      call.runtime().force(call.lock(), *stream, ticket);
    }
    lock.lock();
  }
}

void Member::issue(std::shared_ptr<Stream> stream, uint64_t ticket) {
  std::lock_guard lock(mutex);
  issued.emplace_back(std::move(stream), ticket);
  changed.notify_one();
}

bool Member::send(const Exchange& e) {
  NcclRequest request = e.request;
  request.num_bytes = e.bytes.size();
  return write_all(connection, &request, sizeof(request)) && write_all(connection, e.bytes.data(), e.bytes.size());
}

bool Member::receive(Exchange& e) {
  uint64_t num_bytes = 0;
  if (!read_all(connection, &num_bytes, sizeof(num_bytes))) return false;
  e.bytes.resize(num_bytes);
  return read_all(connection, e.bytes.data(), num_bytes);
}

/// On the stream's turn, and not before the communicator is there.  A rank that is gone is waited for like one that is late.
bool Member::exchange(std::vector<Exchange>& group) {
  bool good = true;
  for (Exchange& e : group) {
    if (e.request.kind == Kind::kRecv) continue;
    good = good && !aborted && send(e) && (e.request.kind == Kind::kSend || receive(e));
  }
  for (Exchange& e : group) {
    if (e.request.kind == Kind::kRecv) good = good && !aborted && send(e) && receive(e);
  }
  while (!good && !aborted) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return good && !aborted;
}

}  // namespace
}  // namespace cuda_emulation

struct ncclComm {
  std::shared_ptr<cuda_emulation::Member> member;
  std::thread thread;
};

namespace cuda_emulation {
namespace {

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Exchange> exchanges;
};

thread_local int group_depth = 0;
thread_local std::vector<Pending> pending;

ncclResult_t launch(Pending& group) {
  const std::shared_ptr<Member> member = group.comm->member;
  if (member->state != ncclSuccess) return ncclInvalidUsage;
  Call call;
  Runtime& runtime = call.runtime();
  const auto stream = runtime.find(group.stream);
  if (stream == nullptr || stream->device->id != member->device) return ncclInvalidArgument;
  for (const Exchange& e : group.exchanges) {
    const Arena& memory = stream->device->memory;
    if (e.request.num_bytes > 0 && !memory.live(e.send, e.request.num_bytes)) return ncclInvalidArgument;
    if (e.recv_bytes > 0 && !memory.live(e.recv, e.recv_bytes)) return ncclInvalidArgument;
  }
  struct State {
    std::vector<Exchange> exchanges;
    bool arrived = false;
  };
  const auto state = std::make_shared<State>(State{std::move(group.exchanges)});
  const unsigned int arena = 1U << member->device;
  runtime.enqueue(call.lock(), stream, {Task::Kind::kMemory, arena, [state] {
                    for (Exchange& e : state->exchanges) {
                      const auto* bytes = static_cast<const std::byte*>(e.send);
                      e.bytes.assign(bytes, bytes + e.request.num_bytes);
                    }
                  }, nullptr});
  runtime.enqueue(call.lock(), stream, {Task::Kind::kExternal, kNoArenas, [state, member] {
                    state->arrived = member->exchange(state->exchanges);
                  }, nullptr});
  const uint64_t ticket = runtime.enqueue(call.lock(), stream, {Task::Kind::kMemory, arena, [state] {
                    if (!state->arrived) return;
                    for (const Exchange& e : state->exchanges) {
                      if (e.recv_bytes > 0) std::memcpy(e.recv, e.bytes.data(), e.recv_bytes);
                    }
                  }, nullptr});
  member->issue(stream, ticket);
  return member->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, Exchange exchange) {
  if (comm == nullptr) return ncclInvalidArgument;
  exchange.request.rank = comm->member->rank;
  exchange.request.num_ranks = comm->member->num_ranks;
  if (group_depth == 0) {
    Pending alone{comm, stream, {}};
    alone.exchanges.push_back(std::move(exchange));
    return launch(alone);
  }
  for (Pending& group : pending) {
    if (group.comm == comm && group.stream == stream) {
      group.exchanges.push_back(std::move(exchange));
      return ncclSuccess;
    }
  }
  pending.push_back({comm, stream, {}});
  pending.back().exchanges.push_back(std::move(exchange));
  return ncclSuccess;
}

ncclResult_t collective(Kind kind, const void* send, void* recv, size_t count, size_t send_count, size_t recv_count,
                        ncclDataType_t type, int op, int root, ncclComm_t comm, cudaStream_t stream) {
  Exchange e;
  e.request = {kind, 0, 0, type, op, root, count, send_count * size_of(type)};
  e.send = send;
  e.recv = recv;
  e.recv_bytes = recv_count * size_of(type);
  return submit(comm, stream, std::move(e));
}

ncclResult_t end(ncclComm_t comm, bool abort) {
  if (comm == nullptr) return ncclInvalidArgument;
  Member& member = *comm->member;
  {
    std::lock_guard lock(member.mutex);
    if (abort) {
      member.aborted = true;
      if (member.connection >= 0) shutdown(member.connection, SHUT_RDWR);
    }
    member.stop = true;
    member.changed.notify_one();
  }
  comm->thread.join();
  if (member.connection >= 0) close(member.connection);
  delete comm;
  return ncclSuccess;
}

}  // namespace
}  // namespace cuda_emulation

using cuda_emulation::collective;
using cuda_emulation::Kind;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = cuda_emulation::start_nccl_server();
  if (name.empty()) return ncclSystemError;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (comm == nullptr || rank < 0 || rank >= num_ranks) return ncclInvalidArgument;
  auto member = std::make_shared<cuda_emulation::Member>();
  member->rank = rank;
  member->num_ranks = num_ranks;
  member->device = cuda_emulation::current_device();
  member->blocking = config == nullptr || config->blocking != 0;
  *comm = new ncclComm;
  (*comm)->member = member;
  (*comm)->thread = std::thread([member, name = std::string(id.internal)] { member->run(name); });
  if (!member->blocking) return ncclInProgress;
  while (member->state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return member->state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm == nullptr) return ncclInvalidArgument;
  *state = comm->member->state;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return cuda_emulation::end(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return cuda_emulation::end(comm, true); }

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(Kind::kAllReduce, send, recv, count, count, count, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const bool receives = comm != nullptr && comm->member->rank == root;
  return collective(Kind::kReduce, send, recv, count, count, receives ? count : 0, type, op, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const bool sends = comm != nullptr && comm->member->rank == root;
  return collective(Kind::kBroadcast, send, recv, count, sends ? count : 0, count, type, 0, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t send_count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t n = comm != nullptr ? static_cast<size_t>(comm->member->num_ranks) : 0;
  return collective(Kind::kAllGather, send, recv, send_count, send_count, n * send_count, type, 0, -1, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t recv_count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t n = comm != nullptr ? static_cast<size_t>(comm->member->num_ranks) : 0;
  return collective(Kind::kReduceScatter, send, recv, recv_count, n * recv_count, recv_count, type, op, -1, comm, stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return collective(Kind::kSend, send, nullptr, count, count, 0, type, 0, peer, comm, stream);
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return collective(Kind::kRecv, nullptr, recv, count, 0, count, type, 0, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++cuda_emulation::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  using namespace cuda_emulation;
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (Pending& group : pending) {
    const ncclResult_t one = launch(group);
    if (result == ncclSuccess || result == ncclInProgress) result = one;
  }
  pending.clear();
  return result;
}

ncclResult_t ncclMemAlloc(void** memory, size_t num_bytes) {
  return cudaMalloc(memory, num_bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) { return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t, void** handle) {
  if (comm == nullptr) return ncclInvalidArgument;
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) { return comm == nullptr ? ncclInvalidArgument : ncclSuccess; }
