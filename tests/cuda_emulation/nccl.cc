// NCCL's API.  Concurrent use of a communicator, or use after it was destroyed or aborted, ends the process.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/tests/cuda_emulation/library.h>
#include <tandem/tests/cuda_emulation/nccl_communicator.h>

/// A handle. Guarded by Handles::mutex.
struct ncclComm {
  std::shared_ptr<cuda_emulation::Communicator> communicator;  // null after it was destroyed or aborted
  const char* call = "";                                       // the newest call
  std::thread::id caller = {};
  int num_running = 0;            // number of running calls
  std::thread::id grouping = {};  // the thread with an open group that contains calls on it
};

namespace cuda_emulation { namespace {

using Kind = NcclRequest::Kind;

/// Minimum duration of a launch, so that concurrent calls of other threads are detected.
constexpr std::chrono::microseconds kLaunchTime{50};

struct Handles {
  std::mutex mutex;  // locked after the runtime's mutex
  std::condition_variable left;
  std::deque<ncclComm> all;  // never destroyed, so that no address is reused
};

Handles& handles() {
  static Handles* all = new Handles;  // never destroyed: communicators may be used after main
  return *all;
}

thread_local std::string last_error;

ncclResult_t fail(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

/// The caller holds the lock.
Communicator& find(ncclComm_t comm, const char* call) {
  const auto& all = handles().all;
  const bool known = std::any_of(all.begin(), all.end(), [comm](const ncclComm& one) { return &one == comm; });
  if (!known) end_process(std::string(call) + ": no communicator");
  if (comm->communicator == nullptr)
    end_process(std::string(call) + " after the communicator was destroyed or aborted");
  return *comm->communicator;
}

/// A call on a communicator while it runs.
class Running {
 public:
  Running(ncclComm_t comm, const char* call) : comm_(comm) {
    std::lock_guard lock(handles().mutex);
    const Communicator& found = find(comm, call);
    const auto self = std::this_thread::get_id();
    if ((comm->num_running > 0 && comm->caller != self) ||
        (comm->grouping != std::thread::id() && comm->grouping != self)) {
      end_process(std::string(call) + " while another thread is in " + comm->call +
                  (comm->num_running > 0 ? "" : " of an open group") + " on the communicator of rank " +
                  std::to_string(found.rank));
    }
    communicator_ = comm->communicator;
    comm->call = call;
    comm->caller = self;
    ++comm->num_running;
  }
  ~Running() {
    std::lock_guard lock(handles().mutex);
    --comm_->num_running;
    handles().left.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Communicator* operator->() const { return communicator_.get(); }
  Communicator& operator*() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared() const { return communicator_; }
  void set_grouping(bool on) {
    std::lock_guard lock(handles().mutex);
    comm_->grouping = on ? std::this_thread::get_id() : std::thread::id();
  }
  /// Detaches the handle from its communicator.
  void end() {
    std::lock_guard lock(handles().mutex);
    comm_->communicator = nullptr;
  }

 private:
  const ncclComm_t comm_;
  std::shared_ptr<Communicator> communicator_;
};

/// NCCL kernels of two communicators on one GPU must be ordered, or all their blocks must fit on it: otherwise ranks
/// may run them in different orders and deadlock.
bool can_run(const Runtime& runtime, const Communicator& own, const Stream& stream) {
  static const bool implicit = [] {
    const char* const text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return text != nullptr && std::atoi(text) != 0;
  }();
  if (implicit) return true;
  int num_others = 0, num_blocks = own.max_blocks;
  std::lock_guard lock(handles().mutex);
  for (const ncclComm& other : handles().all) {
    if (other.communicator == nullptr || other.communicator.get() == &own || other.communicator->device != own.device ||
        other.communicator->is_before(runtime, stream)) {
      continue;
    }
    ++num_others;
    num_blocks += other.communicator->max_blocks;
  }
  return num_others == 0 || num_blocks <= kMultiprocessors;
}

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Exchange> exchanges;
};

thread_local int group_depth = 0;
thread_local std::vector<Pending> pending;

/// ncclSuccess if the communicator accepts a call.
ncclResult_t check_ready(const Communicator& communicator) {
  const ncclResult_t state = communicator.state();
  return state == ncclInProgress ? fail(ncclInvalidArgument, "the communicator's last call is still in progress")
                                 : state;
}

ncclResult_t launch(const Running& communicator, Pending& group) {
  if (const ncclResult_t state = check_ready(*communicator); state != ncclSuccess) return state;
  NcclLaunch launch{nullptr, std::move(group.exchanges), {}};
  {
    Call call;
    Runtime& runtime = call.runtime();
    launch.stream = runtime.find(group.stream);
    if (launch.stream == nullptr || launch.stream->device->id != communicator->device) {
      return fail(ncclInvalidArgument, "no stream of the communicator's device");
    }
    const Arena& memory = launch.stream->device->memory;
    for (const Exchange& e : launch.exchanges) {
      for (const auto& [p, num_bytes] :
           {std::pair<const void*, size_t>(e.send, e.request.num_bytes), {e.recv, e.recv_bytes}}) {
        if (num_bytes > 0 && !memory.live(p, num_bytes))
          return fail(ncclInvalidArgument, "no memory of the communicator's device");
      }
    }
    const auto may_launch = [&runtime, own = std::weak_ptr(communicator.shared())](const Stream& stream) {
      const auto found = own.lock();
      if (found == nullptr || can_run(runtime, *found, stream)) return true;
      runtime.refuse(
          "NCCL: calls of two communicators are queued on one device and no event orders them; ranks may run them in "
          "different orders, and wait for each other for ever (maxCTAs, NCCL_LAUNCH_ORDER_IMPLICIT=1)");
      return false;
    };
    if (launch.stream->capture != nullptr) {
      launch.may_launch = may_launch;
    } else if (!may_launch(*launch.stream)) {
      return fail(ncclInvalidUsage, runtime.last_report);
    }
  }
  communicator->launch(std::move(launch));
  std::this_thread::sleep_for(kLaunchTime);
  return ncclInProgress;
}

ncclResult_t submit(const char* name, ncclComm_t comm, cudaStream_t stream, Exchange exchange) {
  Running communicator(comm, name);
  exchange.request.rank = communicator->rank;
  exchange.request.num_ranks = communicator->num_ranks;
  if (group_depth == 0) {
    Pending alone{comm, stream, {}};
    alone.exchanges.push_back(std::move(exchange));
    return launch(communicator, alone);
  }
  if (const ncclResult_t state = check_ready(*communicator); state != ncclSuccess) return state;
  for (Pending& group : pending) {
    if (group.comm != comm) continue;
    if (group.stream != stream) return fail(ncclInvalidUsage, "several streams in one group");
    group.exchanges.push_back(std::move(exchange));
    return ncclSuccess;
  }
  communicator.set_grouping(true);
  pending.push_back({comm, stream, {}});
  pending.back().exchanges.push_back(std::move(exchange));
  return ncclSuccess;
}

int rank_of(ncclComm_t comm, const char* name) { return Running(comm, name)->rank; }

/// Ends the process unless the buffers are aligned to their type, and are the same memory only where the documentation
/// permits it: a rank's part of the larger buffer is the smaller one.
void check_buffers(const char* name, const Exchange& e, ncclDataType_t type, int rank) {
  const auto send = reinterpret_cast<uintptr_t>(e.send), recv = reinterpret_cast<uintptr_t>(e.recv);
  const size_t send_bytes = e.request.num_bytes, recv_bytes = e.recv_bytes;
  if ((send_bytes != 0 && send % size_of(type) != 0) || (recv_bytes != 0 && recv % size_of(type) != 0)) {
    end_process(std::string(name) + ": a buffer is not aligned to its type");
  }
  if (send_bytes == 0 || recv_bytes == 0) return;
  const size_t part = static_cast<size_t>(rank) * std::min(send_bytes, recv_bytes);
  const bool in_place = send_bytes < recv_bytes   ? send == recv + part
                        : recv_bytes < send_bytes ? recv == send + part
                                                  : send == recv;
  if (!in_place)
    check_disjoint(std::string(name) + ": the sent buffer", e.send, send_bytes, "the received one", e.recv, recv_bytes);
}

ncclResult_t collective(const char* name, Kind kind, const void* send, void* recv, size_t count, size_t send_count,
                        size_t recv_count, ncclDataType_t type, int op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  Exchange e;
  e.request = {kind, 0, 0, type, op, root, count, send_count * size_of(type), 0};
  e.send = send;
  e.recv = recv;
  e.recv_bytes = recv_count * size_of(type);
  check_buffers(name, e, type, rank_of(comm, name));
  return submit(name, comm, stream, std::move(e));
}

bool has_rank(ncclComm_t comm, int rank, const char* name) {
  return rank >= 0 && rank < Running(comm, name)->num_ranks;
}
size_t num_ranks_of(ncclComm_t comm, const char* name) { return static_cast<size_t>(Running(comm, name)->num_ranks); }

}}  // namespace cuda_emulation

using cuda_emulation::collective;
using cuda_emulation::Communicator;
using cuda_emulation::end_process;
using cuda_emulation::fail;
using cuda_emulation::handles;
using cuda_emulation::Kind;
using cuda_emulation::Running;

#define TANDEM_RECORD()                                                                      \
  if (const int to_inject = cuda_emulation::record_library_call(__func__); to_inject != 0) { \
    cuda_emulation::last_error = "injected";                                                 \
    return static_cast<ncclResult_t>(to_inject);                                             \
  }

ncclResult_t ncclGetVersion(int* version) {
  TANDEM_RECORD();
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  TANDEM_RECORD();
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

const char* ncclGetLastError(ncclComm_t) { return cuda_emulation::last_error.c_str(); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  TANDEM_RECORD();
  if (comm == nullptr || rank < 0 || rank >= num_ranks || config == nullptr || config->blocking != 0) {
    return ncclInvalidArgument;
  }
  const bool is_limited = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (is_limited && config->maxCTAs <= 0) return ncclInvalidArgument;
  const auto communicator =
      std::make_shared<Communicator>(rank, num_ranks, cuda_emulation::current_device(),
                                     is_limited ? config->maxCTAs : cuda_emulation::kMultiprocessors);
  {
    std::lock_guard lock(handles().mutex);
    *comm = &handles().all.emplace_back(ncclComm{communicator});
  }
  communicator->start(id.internal);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  TANDEM_RECORD();
  *state = Running(comm, "ncclCommGetAsyncError")->state();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  TANDEM_RECORD();
  if (comm == nullptr) return ncclSuccess;
  Running communicator(comm, "ncclCommDestroy");
  if (const ncclResult_t state = cuda_emulation::check_ready(*communicator); state != ncclSuccess) return state;
  communicator->leave();
  communicator.end();
  return ncclSuccess;
}

// The only call that is allowed during a call of another thread, which it ends. NCCL may then wait for other ranks of
// the host; TANDEM_EMULATED_ABORT_MS is the duration of this wait.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  TANDEM_RECORD();
  if (comm == nullptr) return ncclSuccess;
  std::unique_lock lock(handles().mutex);
  const auto communicator = cuda_emulation::find(comm, "ncclCommAbort").shared_from_this();
  communicator->abort();
  handles().left.wait(lock, [&] { return comm->num_running == 0; });
  comm->communicator = nullptr;
  lock.unlock();
  communicator->wait_for_graphs();
  if (const char* const text = std::getenv("TANDEM_EMULATED_ABORT_MS")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(text)));
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  TANDEM_RECORD();
  return collective("ncclAllReduce", Kind::kAllReduce, send, recv, count, count, count, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  TANDEM_RECORD();
  if (!cuda_emulation::has_rank(comm, root, "ncclReduce")) return ncclInvalidArgument;
  const bool receives = cuda_emulation::rank_of(comm, "ncclReduce") == root;
  return collective("ncclReduce", Kind::kReduce, send, recv, count, count, receives ? count : 0, type, op, root, comm,
                    stream);
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  TANDEM_RECORD();
  if (!cuda_emulation::has_rank(comm, root, "ncclBroadcast")) return ncclInvalidArgument;
  const bool sends = cuda_emulation::rank_of(comm, "ncclBroadcast") == root;
  return collective("ncclBroadcast", Kind::kBroadcast, send, recv, count, sends ? count : 0, count, type, 0, root, comm,
                    stream);
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t send_count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  TANDEM_RECORD();
  const size_t n = cuda_emulation::num_ranks_of(comm, "ncclAllGather");
  return collective("ncclAllGather", Kind::kAllGather, send, recv, send_count, send_count, n * send_count, type, 0, -1,
                    comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t recv_count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  TANDEM_RECORD();
  const size_t n = cuda_emulation::num_ranks_of(comm, "ncclReduceScatter");
  return collective("ncclReduceScatter", Kind::kReduceScatter, send, recv, recv_count, n * recv_count, recv_count, type,
                    op, -1, comm, stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  TANDEM_RECORD();
  if (!cuda_emulation::has_rank(comm, peer, "ncclSend")) return ncclInvalidArgument;
  return collective("ncclSend", Kind::kSend, send, nullptr, count, count, 0, type, 0, peer, comm, stream);
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  TANDEM_RECORD();
  if (!cuda_emulation::has_rank(comm, peer, "ncclRecv")) return ncclInvalidArgument;
  return collective("ncclRecv", Kind::kRecv, nullptr, recv, count, 0, count, type, 0, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  TANDEM_RECORD();
  ++cuda_emulation::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  using namespace cuda_emulation;
  const auto to_inject = static_cast<ncclResult_t>(record_library_call(__func__));
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (Pending& group : pending) {
    Running communicator(group.comm, "ncclGroupEnd");
    const ncclResult_t one = to_inject != ncclSuccess ? to_inject : launch(communicator, group);
    communicator.set_grouping(false);
    if (result == ncclSuccess || result == ncclInProgress) result = one;
  }
  pending.clear();
  return result;
}
