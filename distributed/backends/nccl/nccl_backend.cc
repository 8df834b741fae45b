#include <tandem/distributed/backends/nccl/nccl_backend.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/function_ref.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/backends/nccl/communicator.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/gpu_trace_clock.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using cuda::DeviceGuard;
using cuda::Event;
using cuda::Stream;
using cuda::StreamGuard;

constexpr std::chrono::milliseconds kPollInterval{20};  // between two polls of the collectives in progress
/// Grace time after an NCCL error. During this time a rank with the root cause may report it.
constexpr std::chrono::milliseconds kRootCauseGrace{300};
// CUDA blocks a host thread whose stream holds about a thousand launches. The thread would block inside NCCL, where no
// abort could end the wait.
constexpr size_t kMaxUnderWay = 128;

/// Kernels of two communicators on one GPU can deadlock: a kernel that waits for other ranks may wait forever for GPU
/// resources that another such kernel occupies. So ordered NcclBackends use the GPU one after the other.
struct LaunchOrder {
  std::recursive_mutex mutex;  // locked by each NcclBackend of a graph
  uint64_t stream = 0;         // id of the stream that launched last
  std::optional<Event> done;   // completion of its last launch
};

LaunchOrder& launch_order(Device device) {
  static auto* const orders =
      new std::array<LaunchOrder, 64>;  // never destroyed: at process exit the driver is shut down first
  return (*orders)[static_cast<size_t>(device.index) % orders->size()];
}

class NcclBackendImpl;

/// Enqueues the copies and what run() enqueues on the current stream.
void with_copies(const std::vector<CopyStep>& before, const std::vector<CopyStep>& after, FunctionRef<void()> run) {
  for (const CopyStep& copy : before) primitives::copy(copy.from, copy.to);
  run();
  for (const CopyStep& copy : after) primitives::copy(copy.from, copy.to);
}

struct InFlightWork final : GpuWork {
  InFlightWork(std::shared_ptr<NcclBackendImpl> of, Operation& operation, std::string shown_title, bool ends_together,
               const NcclBackend::AgreedTime& all_started, Device device,
               std::shared_ptr<const cuda::ClockAnchor> traced)
      : nccl(std::move(of)),
        kept(std::move(operation.kept)),
        before(std::move(operation.before)),
        after(std::move(operation.after)),
        at_end(std::move(operation.at_end)),
        title(std::move(shown_title)),
        shown_name(operation.shown_name()),
        num_bytes(operation.num_bytes()),
        seq(operation.number()),
        all_end_together(ends_together),
        timeout(operation.timeout),
        agreed(all_started),
        anchor(std::move(traced)),
        begun(device, anchor != nullptr),
        done(device, anchor != nullptr) {}
  void join() override;

  bool is_done() const { return is_launched && done.is_completed(); }
  bool is_late(NcclBackend::Clock::time_point now) const {
    const auto since = agreed->load();
    return timeout.count() > 0 && since != NcclBackend::Clock::time_point() && now - since >= timeout;
  }

  const std::shared_ptr<NcclBackendImpl> nccl;
  TensorList kept;  // tensors of the collective and of its copies; released when it is done
  std::vector<CopyStep> before, after;
  const std::function<void()> at_end;  // called when the collective is complete
  const std::string title, shown_name;
  const int64_t num_bytes;
  const int64_t seq;
  const bool all_end_together;  // ranks that take part reach their deadline at about the same time
  const std::chrono::milliseconds timeout;
  const NcclBackend::AgreedTime agreed;
  const std::shared_ptr<const cuda::ClockAnchor> anchor;  // null if no trace is recorded
  const Event begun;
  const Event done;
  std::atomic<bool> is_launched{false};  // `done` is recorded after all work of the collective
  bool is_lost = false;                  // the collective was aborted; guarded by NcclBackendImpl::mutex_
  bool is_joined = false;                // a stream waits for the collective; guarded by NcclBackendImpl::mutex_
};

using Works = std::vector<std::shared_ptr<InFlightWork>>;

/// Runs collectives by NCCL on one GPU. Every launched collective has a reference to its backend, which is destroyed
/// after the last collective. close() stops the watchdog thread and destroys the communicator.
class NcclBackendImpl final : public NcclBackend, public std::enable_shared_from_this<NcclBackendImpl> {
 public:
  explicit NcclBackendImpl(Options options)
      : options_(std::move(options)),
        stream_(options_.device, true),
        communicator_(options_.device, options_.rank, options_.world_size, options_.max_blocks),
        trace_clock_(options_.device) {}

  void join_others(const NcclId& id, Clock::time_point deadline);
  void close();

  Device device() const override { return options_.device; }
  std::shared_ptr<GpuWork> launch(CollectiveOperation& operation, const AgreedTime& agreed) override;
  std::shared_ptr<const cuda::CapturePoint> capture(const CollectiveOperation& operation) override;
  void launch_graph(CollectiveOperation& check, const AgreedTime& agreed,
                    const std::function<void()>& launch_graph) override;
  std::shared_ptr<GpuWork> launch(MessageBatch& batch) override;
  void abort_after(std::chrono::milliseconds grace) override;
  void suppress_deferred_error() override;
  void finish() override;
  void join(InFlightWork& work);

 private:
  struct Problem {
    std::string text;
    int culprit = -1;
    std::chrono::milliseconds grace{0};  // time in which the root cause may arrive
  };

  bool is_failing() const { return options_.latch->is_failing(); }
  std::string text_of(const Failure& failure) const {
    return str(options_.who, " ",
               failure.is_of_gpu ? failure.reason : failure_text("failed", failure.culprit, failure.reason));
  }
  void check();
  void start(const std::shared_ptr<InFlightWork>& work, const Stream& stream, FunctionRef<void()> wait_for_inputs,
             FunctionRef<void()> run);
  void queue(InFlightWork& work, const Stream& stream, FunctionRef<void()> wait_for_inputs, FunctionRef<void()> run);
  void take_place(const std::shared_ptr<InFlightWork>& work);
  void watch();
  Problem look(std::unique_lock<std::mutex>& lock, Works& done, bool searches);
  Problem describe_late(const InFlightWork& work) const;
  void trace(const InFlightWork& work) const;
  void abort();

  const Options options_;
  const Stream stream_;
  Communicator communicator_;
  cuda::GpuTraceClock trace_clock_;  // used by the launching thread

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<InFlightWork>> in_flight_;
  bool is_reported_ = false;         // the caller has received this failure
  bool has_deferred_error_ = false;  // a deferred error is set on the device
  Clock::time_point abort_at_ = Clock::time_point::max();
  bool stop_ = false;
  std::thread watch_;
};

void InFlightWork::join() { nccl->join(*this); }

void release(const Works& works) {
  for (const auto& work : works) {
    work->kept.clear();
    work->before.clear();
    work->after.clear();
  }
}

// --- creation and destruction ---

void NcclBackendImpl::join_others(const NcclId& id, Clock::time_point deadline) {
  if (!communicator_.join(id, [&] { return Clock::now() >= deadline || is_failing(); })) {
    check();
    throw CommError(options_.who + " NCCL: initialization timed out: not all ranks have joined", options_.job_rank);
  }
  try {
    watch_ = start_thread([self = shared_from_this()] { self->watch(); });
  } catch (...) {
    communicator_.abort();
    throw;
  }
}

void NcclBackendImpl::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_.empty() || is_failing(); });
}

/// Called when the owner releases the backend. on_failure may release it, on the watchdog thread itself.
void NcclBackendImpl::close() {
  finish();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (watch_.get_id() == std::this_thread::get_id()) {
    watch_.detach();
  } else if (watch_.joinable()) {
    watch_.join();
  }
  if (is_failing()) {
    abort();
  } else {
    communicator_.end();
  }
  Works left;
  {
    std::lock_guard lock(mutex_);
    left.assign(in_flight_.begin(), in_flight_.end());
    in_flight_.clear();
  }
  try {
    const Event last(options_.device);
    last.record(stream_);
    last.synchronize();     // an aborted kernel may still write
  } catch (const Error&) {  // was already reported to the launching caller
  }
  release(left);
}

// --- launching ---

/// Throws the failure of the group, if it has failed.
void NcclBackendImpl::check() {
  const auto failure = options_.latch->cause();
  if (!failure) return;
  suppress_deferred_error();
  throw CommError(text_of(*failure), options_.job_rank, failure->missing >= 0 ? failure->missing : failure->culprit);
}

void NcclBackendImpl::join(InFlightWork& work) {
  bool has_failed = false;
  {
    std::lock_guard lock(mutex_);
    has_failed = is_failing();
    work.is_joined = work.is_joined || !has_failed;
  }
  if (has_failed) {
    const bool is_done = work.is_done();
    std::unique_lock lock(mutex_);
    const bool is_valid = !work.is_lost && is_done;
    work.is_joined = work.is_joined || is_valid;
    lock.unlock();
    if (!is_valid) check();
  }
  work.done.make_wait(cuda::current_stream(options_.device));
}

std::shared_ptr<GpuWork> NcclBackendImpl::launch(CollectiveOperation& operation, const AgreedTime& agreed) {
  const DeviceGuard guard(options_.device);
  check();
  const auto work =
      std::make_shared<InFlightWork>(shared_from_this(), operation, operation.title(), operation.collective.root < 0,
                                     agreed, options_.device, trace_clock_.anchor());
  const auto wait_for_inputs = [&] {
    const Event ready(options_.device);
    ready.record(cuda::current_stream(options_.device));
    ready.make_wait(stream_);
  };
  start(work, stream_, wait_for_inputs, [&] { communicator_.run(operation.collective, stream_); });
  return work;
}

std::shared_ptr<GpuWork> NcclBackendImpl::launch(MessageBatch& batch) {
  const DeviceGuard guard(options_.device);
  check();
  const auto now = std::make_shared<AgreedTime::element_type>(Clock::now());
  const auto work = std::make_shared<InFlightWork>(shared_from_this(), batch, batch.title(), false, now,
                                                   options_.device, trace_clock_.anchor());
  const auto wait_for_inputs = [&] {
    for (const GpuTransfer& transfer : batch.transfers) transfer.ready.make_wait(stream_);
  };
  start(work, stream_, wait_for_inputs, [&] { communicator_.run(batch, stream_); });
  return work;
}

std::shared_ptr<const cuda::CapturePoint> NcclBackendImpl::capture(const CollectiveOperation& operation) {
  const DeviceGuard guard(options_.device);
  check();
  const Stream branch = cuda::fork_capture(options_.device);
  const StreamGuard on(branch);
  try {
    with_copies(operation.before, operation.after, [&] { communicator_.run(operation.collective, branch); });
  } catch (const BackendError&) {
    check();  // the failure of another rank may have aborted the communicator
    throw;
  }
  return cuda::capture_point();
}

void NcclBackendImpl::launch_graph(CollectiveOperation& check_of_launch, const AgreedTime& agreed,
                                   const std::function<void()>& launch_graph) {
  const DeviceGuard guard(options_.device);
  check();
  const auto work = std::make_shared<InFlightWork>(shared_from_this(), check_of_launch,
                                                   str("graph replay #", check_of_launch.number()), true, agreed,
                                                   options_.device, trace_clock_.anchor());
  work->is_joined = true;
  start(
      work, cuda::current_stream(options_.device), [] {}, launch_graph);
}

void NcclBackendImpl::start(const std::shared_ptr<InFlightWork>& work, const Stream& stream,
                            FunctionRef<void()> wait_for_inputs, FunctionRef<void()> run) {
  take_place(work);
  try {
    queue(*work, stream, wait_for_inputs, run);
  } catch (...) {
    // Work that was already enqueued may run, so its memory is kept until that work is complete.
    try {
      work->done.record(stream);
    } catch (const Error&) {
    }
    work->is_launched = true;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, 2 * kRootCauseGrace, [&] { return is_failing(); });
    }
    check();  // throws the root cause if it is known
    throw;
  }
  work->is_launched = true;
  changed_.notify_all();
}

/// Adds the collective to in_flight_, where the watchdog checks its deadline.
void NcclBackendImpl::take_place(const std::shared_ptr<InFlightWork>& work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_.size() < kMaxUnderWay || is_failing(); });
  if (is_failing()) {
    lock.unlock();
    check();
  }
  in_flight_.push_back(work);
  changed_.notify_all();
}

/// `wait_for_inputs` makes `stream` wait for earlier work; `run` enqueues the transfer on it.
void NcclBackendImpl::queue(InFlightWork& work, const Stream& stream, FunctionRef<void()> wait_for_inputs,
                            FunctionRef<void()> run) {
  LaunchOrder& order = launch_order(options_.device);
  std::unique_lock lock(order.mutex, std::defer_lock);
  if (options_.is_ordered) lock.lock();
  wait_for_inputs();
  if (options_.is_ordered && order.done && order.stream != stream.id()) order.done->make_wait(stream);
  const StreamGuard on(stream);
  work.begun.record(stream);
  with_copies(work.before, work.after, run);
  work.done.record(stream);
  if (!options_.is_ordered) return;
  order.stream = stream.id();
  order.done = work.done;
}

// --- collectives in progress ---

void NcclBackendImpl::abort_after(std::chrono::milliseconds grace) {
  {
    std::lock_guard lock(mutex_);
    abort_at_ = std::min(abort_at_, Clock::now() + (in_flight_.empty() ? std::chrono::milliseconds(0) : grace));
  }
  changed_.notify_all();
}

void NcclBackendImpl::suppress_deferred_error() {
  std::lock_guard lock(mutex_);
  is_reported_ = true;
  if (std::exchange(has_deferred_error_, false)) cuda::cancel_deferred_error(options_.device, this);
}

/// Moves completed collectives from in_flight_ to `done`; the caller releases them without the lock. Returns a detected
/// problem, or an empty one; `searches`: looks for problems.
NcclBackendImpl::Problem NcclBackendImpl::look(std::unique_lock<std::mutex>& lock, Works& done, bool searches) {
  const Clock::time_point now = Clock::now();  // read first: what completes in time is not late
  try {
    while (!in_flight_.empty()) {
      const std::shared_ptr<InFlightWork> first = in_flight_.front();
      lock.unlock();  // abort_after() needs the lock, and an event query may block in the driver
      const bool is_done = first->is_done();
      if (is_done) trace(*first);
      if (is_done && first->at_end) first->at_end();
      lock.lock();
      if (!is_done) break;
      done.push_back(first);
      in_flight_.pop_front();
    }
    if (in_flight_.empty() || !searches) return {};
    const auto late =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto& work) { return work->is_late(now); });
    const std::shared_ptr<InFlightWork> work = late != in_flight_.end() ? *late : nullptr;
    Problem problem;
    lock.unlock();
    if (work != nullptr) {
      problem = describe_late(*work);
    } else {
      communicator_.look();  // throws NCCL's asynchronous errors
    }
    lock.lock();
    return problem;
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    return {.text = error.what(), .grace = kRootCauseGrace};
  }
}

NcclBackendImpl::Problem NcclBackendImpl::describe_late(const InFlightWork& work) const {
  const bool has_begun = work.is_launched && work.begun.is_completed();
  const StragglerReport report = options_.find_stragglers ? options_.find_stragglers(work.seq) : StragglerReport();
  return {.text = str(work.title, " did not finish on ", options_.device, " by its deadline",
                      has_begun ? "" : "; it has not started because earlier work on that GPU has not finished",
                      report.text),
          .culprit = work.all_end_together ? report.culprit : -1};
}

/// Watchdog thread: releases memory, checks deadlines, and aborts.
void NcclBackendImpl::watch() {
  Problem problem;  // becomes the failure at abort_at_, unless the group fails before
  bool has_reported = false;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (in_flight_.empty() && abort_at_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kPollInterval);
    }
    Works done;
    const Problem found = look(lock, done, problem.text.empty() && !is_failing());
    if (!found.text.empty() && problem.text.empty() && !is_failing()) {  // a failed GPU has its error at every poll
      problem = found;
      abort_at_ = Clock::now() + found.grace;
    }
    const bool aborts = Clock::now() >= abort_at_;
    if (aborts) abort_at_ = Clock::time_point::max();
    const bool reports = aborts && !is_failing() && !std::exchange(has_reported, true);
    lock.unlock();
    // Reported first, because abort() may block in NCCL.
    if (reports) {
      options_.on_failure(problem.text, problem.culprit);
      options_.latch->set({.culprit = problem.culprit, .reason = problem.text, .is_of_gpu = true});  // it has no group
    }
    changed_.notify_all();
    if (aborts) abort();
    release(done);
    done.clear();
    lock.lock();
  }
}

/// Aborts NCCL's kernels, which wait for other ranks. If a stream has joined a lost collective, defers an error on the
/// device.
void NcclBackendImpl::abort() {
  const Failure failure = options_.latch->cause().value_or(Failure{-1, "was aborted"});
  Works pending;
  {
    std::lock_guard lock(mutex_);
    pending.assign(in_flight_.begin(), in_flight_.end());
  }
  std::erase_if(pending, [](const auto& work) {
    try {
      return work->is_done();
    } catch (const Error&) {
      return false;
    }
  });
  {
    std::lock_guard lock(mutex_);
    for (const auto& work : pending) {
      if (std::exchange(work->is_lost, true) || !work->is_joined || is_reported_) continue;
      has_deferred_error_ = true;
      const std::string what =
          str(text_of(failure), "\n  ", work->title,
              ": wait() had already returned; values computed from the result on ", options_.device, " are invalid");
      cuda::defer_error(options_.device, this,
                        std::make_exception_ptr(CommError(what, options_.job_rank, failure.culprit)));
    }
  }
  communicator_.abort();
}

// --- traces ---

void NcclBackendImpl::trace(const InFlightWork& work) const {
  if (work.anchor == nullptr) return;
  record_trace({work.shown_name, "comm", options_.job_rank, kNcclStreamThread, work.anchor->host_ns_of(work.begun),
                work.anchor->host_ns_of(work.done), work.num_bytes});
}

}  // namespace

std::shared_ptr<NcclBackend> NcclBackend::join(Options options, const NcclId& id, Clock::time_point deadline) {
  const auto nccl = std::make_shared<NcclBackendImpl>(std::move(options));
  nccl->join_others(id, deadline);
  return {nccl.get(), [nccl](NcclBackend*) { nccl->close(); }};
}

}}}  // namespace tandem::v0::distributed
