#include <tandem/distributed/nccl/gpu_lane.h>

#include <nccl.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem::inline v0::distributed {

namespace {

using cuda::DeviceGuard;
using cuda::Event;
using cuda::Stream;
using cuda::StreamGuard;

constexpr std::chrono::milliseconds kLook{20};  // between two looks at what is under way

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  const char* const more = ncclGetLastError(comm);
  throw BackendError(str(call, ": ", ncclGetErrorString(result), more != nullptr && *more != '\0' ? str(" (", more, ")") : "", ":"),
                     result);
}
#define TANDEM_NCCL_CHECK(call) check_nccl((call), #call)

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case kFloat32: return ncclFloat32;
    case kFloat64: return ncclFloat64;
    case kFloat16: return ncclFloat16;
    case kBFloat16: return ncclBfloat16;
    case kInt64: return ncclInt64;
    case kInt32: return ncclInt32;
    case kUInt8:
    case kBool: return ncclUint8;
  }
  return ncclUint8;
}

/// For bool, whose bytes are 0 and 1, "or" is the larger and "and" the smaller.
std::optional<ncclRedOp_t> operator_of(ReduceOp op, DType dtype) {
  const bool is_bool = dtype == kBool;
  switch (op) {
    case ReduceOp::kSum: return is_bool ? ncclMax : ncclSum;
    case ReduceOp::kAvg: return ncclAvg;
    case ReduceOp::kProduct: return is_bool ? ncclMin : ncclProd;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kBitAnd: return is_bool ? std::optional(ncclMin) : std::nullopt;
    case ReduceOp::kBitOr: return is_bool ? std::optional(ncclMax) : std::nullopt;
    case ReduceOp::kBitXor: return std::nullopt;
  }
  return std::nullopt;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter;
}

/// NCCL wants the communicators of a GPU to be used one after the other, in one order on all ranks.
std::mutex& launch_order(Device device) {
  static std::array<std::mutex, 64> mutexes;
  return mutexes[static_cast<size_t>(device.index) % mutexes.size()];
}

/// Whether the parts lie one after the other and are equally long.
bool are_even(const std::vector<Part>& parts, int64_t element) {
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].num_elements != parts[0].num_elements || parts[i].data != parts[i - 1].data + parts[0].num_elements * element) {
      return false;
    }
  }
  return true;
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

/// The communicator, which memory that is registered with it may outlive.
struct Communicator {
  std::mutex mutex;           // guards `handle`
  ncclComm_t handle = nullptr;  // null once it was aborted or has ended

  ncclComm_t get() {
    std::lock_guard lock(mutex);
    return handle;
  }
  ncclComm_t take() {
    std::lock_guard lock(mutex);
    return std::exchange(handle, nullptr);
  }
};

class Lane;

struct Launched final : GpuWork {
  Launched(std::weak_ptr<Lane> of, CollectiveOperation& operation, Device where, bool timed)
      : lane(std::move(of)),
        kept(std::move(operation.kept)),
        before(std::move(operation.before)),
        after(std::move(operation.after)),
        title(operation.title()),
        shown_name(operation.shown_name()),
        num_bytes(operation.num_bytes()),
        device(where),
        is_timed(timed),
        begun(where, timed),
        done(where, timed) {}
  void join() override;

  const std::weak_ptr<Lane> lane;
  TensorList kept;  // what it reads and writes, and the copies' tensors; gone when it is done
  std::vector<CopyStep> before, after;
  const std::string title, shown_name;
  const int64_t num_bytes;
  const Device device;
  const bool is_timed;  // for a trace
  const Event begun;
  const Event done;
  GpuLane::Clock::time_point deadline = GpuLane::Clock::time_point::max();
};

class Lane final : public GpuLane, public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(Options options)
      : options_(std::move(options)), stream_(options_.device, true), origin_(options_.device, true) {
    origin_.record(stream_);
    stream_.synchronize();
    origin_ns_ = trace_now_ns();
  }
  ~Lane() override;

  void join_others(const NcclId& id, Clock::time_point deadline, const std::function<bool()>& is_given_up);

  Device device() const override { return options_.device; }
  std::shared_ptr<GpuWork> launch(CollectiveOperation& operation) override;
  void give_up(const std::string& reason, std::chrono::milliseconds grace) override;
  RefPtr<Storage> allocate(int64_t num_bytes) override;
  /// Throws CommError where the lane has failed.
  void check();

 private:
  void run(const Collective& c);
  void call(ncclResult_t result, const char* what);
  void exchange_parts(const Collective& c);
  bool is_settled();
  [[noreturn]] void fail(const std::string& reason) const { throw CommError(options_.who + " " + reason, options_.job_rank, -1, -1); }
  void watch();
  std::vector<std::shared_ptr<Launched>> reap();
  void trace(const Launched& work) const;
  void abort_communicator();

  const Options options_;
  const Stream stream_;
  const Event origin_;  // a point of the GPU's time, and of the host's
  int64_t origin_ns_ = 0;

  const std::shared_ptr<Communicator> communicator_ = std::make_shared<Communicator>();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Launched>> under_way_;
  std::string failure_;
  Clock::time_point abort_at_ = Clock::time_point::max();
  bool stop_ = false;
  std::thread watch_;
};

void Launched::join() {
  if (const auto owner = lane.lock()) owner->check();
  done.make_wait(cuda::current_stream(device));
}

Lane::~Lane() {
  {
    std::unique_lock lock(mutex_);
    // All ranks have launched what is under way, or this one has heard that they did not.
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return under_way_.empty() || !failure_.empty(); });
    if (!under_way_.empty() && failure_.empty()) failure_ = "its group was destroyed";
    stop_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (!failure_.empty()) abort_communicator();
  if (const ncclComm_t comm = communicator_->take()) ncclCommDestroy(comm);
}

// --- coming together ---

void Lane::join_others(const NcclId& id, Clock::time_point deadline, const std::function<bool()>& is_given_up) {
  ncclUniqueId unique;
  static_assert(sizeof(unique) == sizeof(id));
  std::memcpy(&unique, id.data(), sizeof(unique));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const DeviceGuard guard(options_.device);
  ncclComm_t& comm = communicator_->handle;  // nobody else knows of it yet
  check_nccl(ncclCommInitRankConfig(&comm, options_.world_size, unique, options_.rank, &config), "ncclCommInitRankConfig");
  for (;;) {
    ncclResult_t state = ncclSuccess;
    TANDEM_NCCL_CHECK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclInProgress) {
      if (state != ncclSuccess) abort_communicator();
      check_nccl(state, "ncclCommInitRankConfig");
      break;
    }
    const bool late = Clock::now() >= deadline;
    if (late || is_given_up()) {
      abort_communicator();
      fail(late ? "NCCL: not all ranks have joined by the deadline" : "NCCL: given up while ranks were joining");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watch_ = start_thread([this] { watch(); });
}

// --- launching ---

void Lane::check() {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(failure_);
}

std::shared_ptr<GpuWork> Lane::launch(CollectiveOperation& operation) {
  const DeviceGuard guard(options_.device);
  const auto work = std::make_shared<Launched>(weak_from_this(), operation, options_.device, trace_enabled());
  check();
  {
    std::lock_guard order(launch_order(options_.device));
    const Event ready(options_.device);
    ready.record(cuda::current_stream(options_.device));
    ready.make_wait(stream_);
    const StreamGuard on(stream_);
    work->begun.record(stream_);
    for (const CopyStep& copy : work->before) chores::copy(copy.from, copy.to);
    run(operation.collective);
    for (const CopyStep& copy : work->after) chores::copy(copy.from, copy.to);
    work->done.record(stream_);
  }
  {
    std::lock_guard lock(mutex_);
    if (operation.timeout.count() > 0) work->deadline = Clock::now() + operation.timeout;
    under_way_.push_back(work);
  }
  changed_.notify_all();
  return work;
}

/// The communicator's last call has begun on the GPU.
bool Lane::is_settled() {
  std::lock_guard lock(communicator_->mutex);
  if (communicator_->handle == nullptr) {
    check();
    fail("NCCL: the communicator was aborted");
  }
  ncclResult_t state = ncclSuccess;
  TANDEM_NCCL_CHECK(ncclCommGetAsyncError(communicator_->handle, &state));
  if (state == ncclInProgress) return false;
  check_nccl(state, "NCCL", communicator_->handle);
  return true;
}

/// A call's result; the first waits for links to be made.
void Lane::call(ncclResult_t result, const char* what) {
  check_nccl(result, what);
  while (result == ncclInProgress && !is_settled()) std::this_thread::yield();
}
#define TANDEM_NCCL_CALL(expression) call((expression), #expression)

void Lane::run(const Collective& c) {
  using Kind = CollectiveKind;
  const ncclDataType_t type = type_of(c.dtype);
  const ncclRedOp_t op = reduces(c.kind) ? *operator_of(c.op, c.dtype) : ncclSum;
  const auto count = static_cast<size_t>(c.num_elements);
  const auto own = static_cast<size_t>(options_.rank);
  const auto stream = static_cast<cudaStream_t>(stream_.handle());
  const ncclComm_t comm = communicator_->get();
  if (comm == nullptr) check();
  if (c.num_elements == 0 && c.kind != Kind::kAllToAll) return;  // on every rank
  switch (c.kind) {
    case Kind::kAllReduce: return TANDEM_NCCL_CALL(ncclAllReduce(c.input, c.output, count, type, op, comm, stream));
    case Kind::kReduce: return TANDEM_NCCL_CALL(ncclReduce(c.input, c.output, count, type, op, c.root, comm, stream));
    case Kind::kBroadcast: return TANDEM_NCCL_CALL(ncclBroadcast(c.input, c.output, count, type, c.root, comm, stream));
    case Kind::kAllGather:
      if (are_even(c.outputs, size_of(c.dtype))) {
        const auto part = static_cast<size_t>(c.outputs[0].num_elements);
        return TANDEM_NCCL_CALL(ncclAllGather(c.input, c.outputs[0].data, part, type, comm, stream));
      }
      break;
    case Kind::kReduceScatter:
      if (are_even(c.inputs, size_of(c.dtype))) {
        return TANDEM_NCCL_CALL(ncclReduceScatter(c.inputs[0].data, c.output, count, type, op, comm, stream));
      }
      break;
    case Kind::kGather:
    case Kind::kScatter:
    case Kind::kAllToAll: return exchange_parts(c);
    case Kind::kBarrier: return;
  }
  // Parts here and there: one after the other, together.
  NcclGroup group;
  for (size_t r = 0; r < static_cast<size_t>(options_.world_size); ++r) {
    const int root = static_cast<int>(r);
    if (c.kind == Kind::kAllGather) {
      const auto part = static_cast<size_t>(c.outputs[r].num_elements);
      const std::byte* const from = r == own ? c.input : c.outputs[r].data;
      if (part > 0) TANDEM_NCCL_CHECK(ncclBroadcast(from, c.outputs[r].data, part, type, root, comm, stream));
    } else {
      TANDEM_NCCL_CHECK(ncclReduce(c.inputs[r].data, r == own ? c.output : nullptr, count, type, op, root, comm, stream));
    }
  }
  call(group.end(), "ncclGroupEnd");
}

/// gather, scatter, all_to_all: what each has for each other, and a copy of its own.
void Lane::exchange_parts(const Collective& c) {
  const auto own = static_cast<size_t>(options_.rank);
  const auto stream = static_cast<cudaStream_t>(stream_.handle());
  const Part input{const_cast<std::byte*>(c.input), c.num_elements}, output{c.output, c.num_elements};
  const bool gathers = c.kind == CollectiveKind::kGather, scatters = c.kind == CollectiveKind::kScatter;
  const bool is_root = options_.rank == c.root;
  const auto sent = [&](size_t to) {
    if (gathers) return static_cast<int>(to) == c.root ? input : Part{};
    return scatters && !is_root ? Part{} : c.inputs[to];
  };
  const auto received = [&](size_t from) {
    if (scatters) return static_cast<int>(from) == c.root ? output : Part{};
    return gathers && !is_root ? Part{} : c.outputs[from];
  };
  if (const Part from = sent(own), to = received(own); to.data != from.data && to.num_elements > 0) {
    chores::copy_bytes(c.device, to.data, from.data, to.num_elements * size_of(c.dtype));
  }
  const ncclComm_t comm = communicator_->get();
  NcclGroup group;
  bool any = false;
  for (size_t r = 0; r < static_cast<size_t>(options_.world_size); ++r) {
    if (r == own) continue;
    const Part to = sent(r), from = received(r);
    const int peer = static_cast<int>(r);
    any = any || to.num_elements > 0 || from.num_elements > 0;
    if (to.num_elements > 0) {
      TANDEM_NCCL_CHECK(ncclSend(to.data, static_cast<size_t>(to.num_elements), type_of(c.dtype), peer, comm, stream));
    }
    if (from.num_elements > 0) {
      TANDEM_NCCL_CHECK(ncclRecv(from.data, static_cast<size_t>(from.num_elements), type_of(c.dtype), peer, comm, stream));
    }
  }
  const ncclResult_t result = group.end();
  if (any) call(result, "ncclGroupEnd");
}

// --- what is under way ---

void Lane::give_up(const std::string& reason, std::chrono::milliseconds grace) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    abort_at_ = std::min(abort_at_, Clock::now() + (under_way_.empty() ? std::chrono::milliseconds(0) : grace));
  }
  changed_.notify_all();
}

/// Takes what is done off the list.  With mutex_ held; what is returned is to be destroyed without.
std::vector<std::shared_ptr<Launched>> Lane::reap() {
  std::vector<std::shared_ptr<Launched>> done;
  while (!under_way_.empty() && under_way_.front()->done.is_completed()) {
    trace(*under_way_.front());
    done.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
  return done;
}

void Lane::trace(const Launched& work) const {
  if (!work.is_timed) return;
  const auto when = [&](const Event& event) {
    return origin_ns_ + static_cast<int64_t>(event.milliseconds_since(origin_) * 1e6);
  };
  record_trace({work.shown_name, "comm", options_.job_rank, kGpuLaneThread, when(work.begun), when(work.done),
                work.num_bytes});
}

/// The thread that lets memory go, looks at the deadlines, and aborts.
void Lane::watch() {
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (under_way_.empty() && abort_at_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kLook);
    }
    std::vector<std::shared_ptr<Launched>> done;
    std::string problem;
    try {
      done = reap();
      if (!under_way_.empty() && failure_.empty()) {
        const Launched& first = *under_way_.front();
        if (Clock::now() >= first.deadline) {
          problem = str(first.title, " was not done on ", options_.device, " by its deadline");
        } else {
          lock.unlock();
          is_settled();  // throws what NCCL has noticed meanwhile
          lock.lock();
        }
      }
    } catch (const Error& error) {
      if (!lock.owns_lock()) lock.lock();
      problem = error.what();
    }
    if (!problem.empty() && failure_.empty()) {
      failure_ = problem;
      abort_at_ = Clock::now();
    }
    const bool aborts = Clock::now() >= abort_at_;
    if (aborts) abort_at_ = Clock::time_point::max();
    const bool tells = !problem.empty() && !std::exchange(told, true);
    if (under_way_.empty()) changed_.notify_all();
    lock.unlock();
    for (const auto& work : done) {
      work->kept.clear();
      work->before.clear();
      work->after.clear();
    }
    if (tells) options_.on_failure(problem);
    if (aborts) abort_communicator();
    lock.lock();
  }
}

void Lane::abort_communicator() {
  if (const ncclComm_t comm = communicator_->take()) ncclCommAbort(comm);
}

RefPtr<Storage> Lane::allocate(int64_t num_bytes) {
  const DeviceGuard guard(options_.device);
  void* memory = nullptr;
  void* handle = nullptr;
  TANDEM_NCCL_CHECK(ncclMemAlloc(&memory, static_cast<size_t>(std::max<int64_t>(num_bytes, 1))));
  {
    std::lock_guard lock(communicator_->mutex);
    const ncclComm_t comm = communicator_->handle;
    if (comm != nullptr) TANDEM_NCCL_CHECK(ncclCommRegister(comm, memory, static_cast<size_t>(std::max<int64_t>(num_bytes, 1)), &handle));
  }
  return Storage::adopt(options_.device, memory, num_bytes, [communicator = communicator_, memory, handle] {
    {
      std::lock_guard lock(communicator->mutex);
      if (communicator->handle != nullptr && handle != nullptr) ncclCommDeregister(communicator->handle, handle);
    }
    ncclMemFree(memory);  // waits for the GPU
  });
}

}  // namespace

NcclId GpuLane::make_id() {
  ncclUniqueId unique;
  TANDEM_NCCL_CHECK(ncclGetUniqueId(&unique));
  NcclId id;
  std::memcpy(id.data(), &unique, sizeof(unique));
  return id;
}

std::shared_ptr<GpuLane> GpuLane::join(Options options, const NcclId& id, Clock::time_point deadline,
                                       const std::function<bool()>& is_given_up) {
  auto lane = std::make_shared<Lane>(std::move(options));
  lane->join_others(id, deadline, is_given_up);
  return lane;
}

void GpuLane::check(const Collective& collective) {
  TANDEM_CHECK(DTypeError, !reduces(collective.kind) || operator_of(collective.op, collective.dtype), to_string(collective.kind),
               ": NCCL has no ", to_string(collective.op), " of ", collective.dtype, "; tensors on a CPU device have");
}

}  // namespace tandem::inline v0::distributed
