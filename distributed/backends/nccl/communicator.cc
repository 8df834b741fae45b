#include <tandem/distributed/backends/nccl/communicator.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/base/thread.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using cuda::DeviceGuard;

constexpr std::chrono::seconds kEnd{5};    // time limit of ncclCommDestroy, which waits for other ranks of this host
constexpr std::chrono::seconds kAbort{1};  // time limit of ncclCommAbort, which may wait for them too
constexpr std::chrono::seconds kExit{2};   // at process exit: time limit for the calls that are still blocked

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  const char* const more = ncclGetLastError(comm);
  throw BackendError(
      str(call, ": ", ncclGetErrorString(result), more != nullptr && *more != '\0' ? str(" (", more, ")") : "", ":"),
      result);
}
#define TANDEM_NCCL_CHECK(call) check_nccl((call), #call)

/// By DType. NCCL has no int16: moved as a type of the same size, never reduced.
ncclDataType_t type_of(DType dtype) {
  constexpr ncclDataType_t kTypes[] = {ncclUint8, ncclUint8,   ncclInt8,     ncclFloat16, ncclInt32,
                                       ncclInt64, ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64};
  static_assert(std::size(kTypes) == static_cast<size_t>(kFloat64) + 1);
  return kTypes[static_cast<size_t>(dtype)];
}

/// Returns nullopt if NCCL does not support the operator. For bool, whose bytes are 0 and 1, "or" is max and "and" is
/// min.
std::optional<ncclRedOp_t> operator_of(ReduceOp op, DType dtype) {
  using Op = std::optional<ncclRedOp_t>;
  static constexpr Op kOps[] = {ncclSum, ncclAvg, ncclProd, ncclMin, ncclMax, {}, {}, {}};  // by ReduceOp
  static constexpr Op kBoolOps[] = {ncclMax, ncclAvg, ncclMin, ncclMin, ncclMax, ncclMin, ncclMax, {}};
  static_assert(std::size(kOps) == static_cast<size_t>(ReduceOp::kBitXor) + 1 &&
                std::size(kBoolOps) == std::size(kOps));
  if (dtype == kInt16) return std::nullopt;
  return (dtype == kBool ? kBoolOps : kOps)[static_cast<size_t>(op)];
}

class NcclGroup {
 public:
  NcclGroup() { TANDEM_NCCL_CHECK(ncclGroupStart()); }
  ~NcclGroup() {
    if (open_) ncclGroupEnd();
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ncclResult_t end() {
    open_ = false;
    return ncclGroupEnd();
  }

 private:
  bool open_ = true;
};

/// Threads that are blocked in an NCCL call. A thread that continues during process exit would use CUDA state that is
/// being destroyed. So process exit waits up to kExit for these threads. A thread that is still blocked after that does
/// no harm.
class Left {
 public:
  static void leave(std::thread thread, std::future<void> ended) {
    Left& left = instance();
    std::lock_guard lock(left.mutex_);
    thread.detach();
    left.ends_.push_back(std::move(ended));
  }

 private:
  static Left& instance() {
    static auto* const left = [] {
      std::atexit([] { instance().wait(); });  // registered after CUDA's handlers, so it runs before them
      return new Left;
    }();
    return *left;
  }
  void wait() {
    const auto until = std::chrono::steady_clock::now() + kExit;
    std::lock_guard lock(mutex_);
    for (const auto& end : ends_) end.wait_until(until);
  }

  std::mutex mutex_;
  std::vector<std::future<void>> ends_;
};

}  // namespace

// --- creation and destruction ---

NcclId NcclBackend::make_id() {
  ncclUniqueId unique;
  TANDEM_NCCL_CHECK(ncclGetUniqueId(&unique));
  NcclId id;
  std::memcpy(id.data(), &unique, sizeof(unique));
  return id;
}

std::string NcclBackend::version() {
  int version = 0;
  TANDEM_NCCL_CHECK(ncclGetVersion(&version));
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

void NcclBackend::check(const Collective& collective) {
  TANDEM_CHECK(DTypeError, !is_reduction(collective.kind) || operator_of(collective.op, collective.dtype),
               to_string(collective.kind), ": NCCL does not support ", to_string(collective.op), " of ",
               collective.dtype, "; use tensors on a CPU device");
}

bool Communicator::join(const NcclId& id, const std::function<bool()>& is_aborted) {
  TANDEM_CHECK(ValueError, env_string("NCCL_COMM_BLOCKING").value_or("0") == "0",
               "NCCL_COMM_BLOCKING: blocking NCCL calls cannot be aborted when a rank fails; unset it");
  ncclUniqueId unique;
  static_assert(sizeof(unique) == sizeof(id));
  std::memcpy(&unique, id.data(), sizeof(unique));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (max_blocks_ > 0) config.maxCTAs = max_blocks_;
  const DeviceGuard guard(device_);
  const ncclResult_t begun = ncclCommInitRankConfig(&handle_, world_size_, unique, rank_, &config);
  if (begun != ncclInProgress && begun != ncclSuccess) abort();
  check_nccl(begun, "ncclCommInitRankConfig");
  for (;;) {
    ncclResult_t state = ncclSuccess;
    TANDEM_NCCL_CHECK(ncclCommGetAsyncError(handle_, &state));
    if (state == ncclSuccess) return true;
    if (state != ncclInProgress) {
      const std::string more = ncclGetLastError(handle_);
      abort();
      throw BackendError(str("ncclCommInitRankConfig: ", ncclGetErrorString(state), " (", more, "):"), state);
    }
    if (is_aborted()) {
      abort();
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Communicator::look() {
  std::lock_guard lock(mutex_);
  ncclResult_t state = ncclSuccess;
  TANDEM_NCCL_CHECK(ncclCommGetAsyncError(handle(), &state));
  check_nccl(state, "NCCL", handle_);
}

void Communicator::abort() {
  std::unique_lock lock(mutex_);
  const ncclComm_t ending = std::exchange(handle_, nullptr);
  lock.unlock();
  if (ending != nullptr) finish(ending, ncclCommAbort, kAbort);
}

void Communicator::end() {
  std::unique_lock lock(mutex_);
  if (handle_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t looked = ncclCommGetAsyncError(handle_, &state);
  const ncclComm_t ending = std::exchange(handle_, nullptr);
  lock.unlock();
  if (looked != ncclSuccess || state != ncclSuccess) {
    finish(ending, ncclCommAbort, kAbort);
  } else if (!finish(ending, ncclCommDestroy, kEnd)) {
    log(LogLevel::kInfo, str("NCCL on ", device_,
                             ": other ranks of this host have not destroyed their communicators; this one is destroyed "
                             "in the background"));
  }
}

/// Runs `call` on its own thread and returns whether it ended within `limit`. ncclCommDestroy and ncclCommAbort may
/// wait for other ranks of this host, but their effect on the GPU's streams is immediate.
bool Communicator::finish(ncclComm_t comm, ncclResult_t (*call)(ncclComm_t), std::chrono::milliseconds limit) const {
  const auto promise = std::make_shared<std::promise<void>>();
  std::future<void> ended = promise->get_future();
  std::thread thread;
  try {
    thread = start_thread([comm, call, promise, device = device_] {
      cudaSetDevice(device.index);
      call(comm);
      promise->set_value();
    });
  } catch (const ResourceError&) {  // no thread
    ncclCommAbort(comm);
    return true;
  }
  const bool in_time = ended.wait_for(limit) == std::future_status::ready;
  if (in_time) {
    thread.join();
  } else {
    Left::leave(std::move(thread), std::move(ended));
  }
  return in_time;
}

// --- collectives ---

ncclComm_t Communicator::handle() const {
  if (handle_ == nullptr) throw BackendError("NCCL: the communicator was aborted:", ncclInvalidUsage);
  return handle_;
}

/// Waits until NCCL has enqueued a call on the GPU. Releases the mutex between polls, so that abort() can run.
void Communicator::settle(std::unique_lock<std::mutex>& lock, ncclResult_t result, const char* call) {
  check_nccl(result, call, handle_);
  // Until then only status queries and abort are allowed.
  for (ncclResult_t state = result; state == ncclInProgress;) {
    check_nccl(ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError", handle_);
    check_nccl(state, call, handle_);
    if (state != ncclInProgress) return;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    handle();
  }
}

void Communicator::run(const Collective& c, const cuda::Stream& on) {
  using Kind = CollectiveKind;
  const auto stream = static_cast<cudaStream_t>(on.handle());
  if (c.num_elements == 0 && c.kind != Kind::kAllToAll) return;  // on every rank
  if (c.kind == Kind::kGather || c.kind == Kind::kScatter || c.kind == Kind::kAllToAll)
    return exchange_parts(c, stream);
  const ncclDataType_t type = type_of(c.dtype);
  const ncclRedOp_t op = is_reduction(c.kind) ? *operator_of(c.op, c.dtype) : ncclSum;
  const auto count = static_cast<size_t>(c.num_elements);
  if (c.in_list) return run_parts(c, op, stream);
  std::unique_lock lock(mutex_);
  const ncclComm_t comm = handle();
  switch (c.kind) {
    case Kind::kAllReduce:
      return settle(lock, ncclAllReduce(c.input, c.output, count, type, op, comm, stream), "ncclAllReduce");
    case Kind::kReduce:
      return settle(lock, ncclReduce(c.input, c.output, count, type, op, c.root, comm, stream), "ncclReduce");
    case Kind::kBroadcast:
      return settle(lock, ncclBroadcast(c.input, c.output, count, type, c.root, comm, stream), "ncclBroadcast");
    case Kind::kAllGather: {
      const auto part = static_cast<size_t>(c.outputs[0].num_elements);
      return settle(lock, ncclAllGather(c.input, c.outputs[0].data, part, type, comm, stream), "ncclAllGather");
    }
    case Kind::kReduceScatter:
      return settle(lock, ncclReduceScatter(c.inputs[0].data, c.output, count, type, op, comm, stream),
                    "ncclReduceScatter");
    default: return;
  }
}

/// all_gather and reduce_scatter of lists: one broadcast or reduce per part, each with another root.
void Communicator::run_parts(const Collective& c, ncclRedOp_t op, cudaStream_t stream) {
  const ncclDataType_t type = type_of(c.dtype);
  const auto own = static_cast<size_t>(rank_);
  std::unique_lock lock(mutex_);
  const ncclComm_t comm = handle();
  NcclGroup group;
  for (size_t r = 0; r < static_cast<size_t>(world_size_); ++r) {
    const int root = static_cast<int>(r);
    if (c.kind == CollectiveKind::kAllGather) {
      const auto part = static_cast<size_t>(c.outputs[r].num_elements);
      const std::byte* const from = r == own ? c.input : c.outputs[r].data;
      if (part > 0) TANDEM_NCCL_CHECK(ncclBroadcast(from, c.outputs[r].data, part, type, root, comm, stream));
    } else {
      const auto count = static_cast<size_t>(c.num_elements);
      TANDEM_NCCL_CHECK(
          ncclReduce(c.inputs[r].data, r == own ? c.output : nullptr, count, type, op, root, comm, stream));
    }
  }
  settle(lock, group.end(), "ncclGroupEnd");
}

void Communicator::run(const MessageBatch& batch, const cuda::Stream& on) {
  const auto stream = static_cast<cudaStream_t>(on.handle());
  const int peer = 1 - rank_;
  std::unique_lock lock(mutex_);
  const ncclComm_t comm = handle();
  NcclGroup group;
  for (const GpuTransfer& t : batch.transfers) {
    const auto count = static_cast<size_t>(t.num_elements);
    if (t.sends) {
      TANDEM_NCCL_CHECK(ncclSend(t.data, count, type_of(t.dtype), peer, comm, stream));
    } else {
      TANDEM_NCCL_CHECK(ncclRecv(t.data, count, type_of(t.dtype), peer, comm, stream));
    }
  }
  settle(lock, group.end(), "ncclGroupEnd");
}

/// gather, scatter, all_to_all: one send and one recv per other rank, and a local copy of this rank's own part.
void Communicator::exchange_parts(const Collective& c, cudaStream_t stream) {
  const auto own = static_cast<size_t>(rank_);
  const Part input{const_cast<std::byte*>(c.input), c.num_elements}, output{c.output, c.num_elements};
  const bool gathers = c.kind == CollectiveKind::kGather, scatters = c.kind == CollectiveKind::kScatter;
  const bool is_root = rank_ == c.root;
  const auto sent = [&](size_t to) {
    if (gathers) return static_cast<int>(to) == c.root ? input : Part{};
    return scatters && !is_root ? Part{} : c.inputs[to];
  };
  const auto received = [&](size_t from) {
    if (scatters) return static_cast<int>(from) == c.root ? output : Part{};
    return gathers && !is_root ? Part{} : c.outputs[from];
  };
  if (const Part from = sent(own), to = received(own); to.data != from.data && to.num_elements > 0) {
    primitives::copy_bytes(c.device, to.data, from.data, to.num_elements * size_of(c.dtype));
  }
  const ncclDataType_t type = type_of(c.dtype);
  std::unique_lock lock(mutex_);
  const ncclComm_t comm = handle();
  NcclGroup group;
  bool any = false;
  for (size_t r = 0; r < static_cast<size_t>(world_size_); ++r) {
    if (r == own) continue;
    const Part to = sent(r), from = received(r);
    const int peer = static_cast<int>(r);
    any = any || to.num_elements > 0 || from.num_elements > 0;
    if (to.num_elements > 0)
      TANDEM_NCCL_CHECK(ncclSend(to.data, static_cast<size_t>(to.num_elements), type, peer, comm, stream));
    if (from.num_elements > 0)
      TANDEM_NCCL_CHECK(ncclRecv(from.data, static_cast<size_t>(from.num_elements), type, peer, comm, stream));
  }
  const ncclResult_t result = group.end();
  if (any) settle(lock, result, "ncclGroupEnd");
}

}}}  // namespace tandem::v0::distributed
