#include <tandem/tensor/cuda_graph.h>

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/primitives_kernels.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/cuda_memory.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace cuda {

constexpr size_t kMaxNumbers = 4096;

/// Host-side results of a capture, for replays.
struct Recorded {
  Device device;
  uint64_t stream_id;                                ///< id of the captured stream
  Tensor block;                                      ///< per-step values on the GPU, float64 [kMaxNumbers]
  std::vector<double> numbers;                       ///< per-step values on the host, copied to `block` by each replay
  std::vector<std::function<void()>> before_replay;  ///< see on_replay
  std::vector<std::function<void()>> at_failure;     ///< see on_failed_capture
  std::vector<std::shared_ptr<ReplayObserver>> observers;
  std::optional<Stream> branch;  ///< see fork_capture
};

namespace {

Recorded* recorded_now() { return static_cast<Recorded*>(RankContext::current().open_streams.capture); }

cudaStream_t handle_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

}  // namespace

class CapturePoint {
 public:
  /// The end of the work that a captured stream has got so far.
  explicit CapturePoint(const Stream& stream) {
    TANDEM_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    const cudaError_t status = cudaEventRecord(event_, handle_of(stream));
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check(status, "cudaEventRecord");
  }
  ~CapturePoint() { cudaEventDestroy(event_); }
  CapturePoint(const CapturePoint&) = delete;
  CapturePoint& operator=(const CapturePoint&) = delete;

  void make_wait(const Stream& stream) const { TANDEM_CUDA_CHECK(cudaStreamWaitEvent(handle_of(stream), event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Graph::Impl {
  explicit Impl(Device device)
      : stream(device), memory(device, stream.id()), recorded{device, stream.id(), {}, {}, {}, {}, {}, {}} {}
  ~Impl() {
    const DeviceGuard guard(recorded.device, std::nothrow);
    if (launched_on)
      cudaStreamSynchronize(handle_of(*launched_on));  // its errors: the next synchronization throws them
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void record(const std::function<void()>& f);
  void undo_capture();
  void run(bool is_first);
  void launch();

  const Stream stream;  ///< used only for capture, so that memory allocated on it belongs to the graph alone
  GraphMemory memory;
  Recorded recorded;
  cudaGraphExec_t graph = nullptr;
  std::optional<Stream> launched_on;
  bool has_run = false;
  bool broken = false;
};

void Graph::Impl::record(const std::function<void()>& f) {
  const DeviceGuard device_guard(recorded.device);
  const StreamGuard stream_guard(stream);
  void*& capture = RankContext::current().open_streams.capture;
  recorded.block = empty({static_cast<int64_t>(kMaxNumbers)}, {kFloat64, recorded.device});

  cudaGraph_t made = nullptr;
  // Relaxed mode, because the allocator may call cudaMalloc during capture; tandem itself rejects what cannot be
  // captured.
  TANDEM_CUDA_CHECK(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeRelaxed));
  capture = &recorded;
  memory.set_capturing(true);
  const auto end = [&] {
    memory.set_capturing(false);
    capture = nullptr;
    return cudaStreamEndCapture(handle_of(stream), &made);
  };
  try {
    f();
    for (const auto& observer : recorded.observers) observer->end_capture();
    check(end(), "cudaStreamEndCapture");
    TANDEM_CUDA_CHECK(cudaGraphInstantiate(&graph, made, 0));
  } catch (...) {
    if (capture != nullptr) end();
    if (made != nullptr) cudaGraphDestroy(made);
    static_cast<void>(cudaGetLastError());
    undo_capture();
    throw;
  }
  cudaGraphDestroy(made);
}

/// After a failed capture, of which the GPU has executed nothing.
void Graph::Impl::undo_capture() {
  if (graph != nullptr) cudaGraphExecDestroy(std::exchange(graph, nullptr));
  for (auto undo = recorded.at_failure.rbegin(); undo != recorded.at_failure.rend(); ++undo) (*undo)();
  recorded.numbers.clear();
  recorded.before_replay.clear();
  recorded.at_failure.clear();
  recorded.observers.clear();
  recorded.branch.reset();
  memory.release();
}

/// The captured run, or a replay.
void Graph::Impl::run(bool is_first) {
  size_t num_begun = 0;
  std::exception_ptr error;
  try {
    for (const auto& observer : recorded.observers) {
      ++num_begun;
      observer->begin_replay(is_first);
    }
    if (!is_first) {
      broken = true;
      for (const std::function<void()>& f : recorded.before_replay) f();
    }
    launch();
    broken = false;
  } catch (...) {
    error = std::current_exception();
  }
  while (num_begun > 0) recorded.observers[--num_begun]->end_replay(error);
  if (error) std::rethrow_exception(error);
}

void Graph::Impl::launch() {
  const DeviceGuard guard(recorded.device);
  const Stream now = current_stream(recorded.device);
  if (launched_on && !(*launched_on == now)) {
    const Event done(recorded.device);
    done.record(*launched_on);
    done.make_wait(now);
  }
  launched_on = now;
  write_numbers(kernel_context(recorded.device), recorded.numbers, recorded.block.data<double>());
  std::function<void()> launch_all = [&] {
    TANDEM_CUDA_CHECK(cudaGraphLaunch(graph, handle_of(now)));
    has_run = true;
  };
  for (const auto& observer : recorded.observers) {
    launch_all = [observer, inner = std::move(launch_all)] { observer->launch(inner); };
  }
  launch_all();
}

Graph::Graph(Device device) : impl_((check_device(device), std::make_unique<Impl>(device))) {}
Graph::~Graph() = default;

void Graph::capture(const std::function<void()>& f) {
  TANDEM_CHECK(StateError, impl_->graph == nullptr, "Graph: capture was already called; create another Graph");
  check_not_capturing("another graph");
  const TraceSpan span("graph capture", "cuda");
  impl_->record(f);
  try {
    impl_->run(/*is_first=*/true);
  } catch (...) {
    if (!impl_->has_run) impl_->undo_capture();
    throw;
  }
  impl_->recorded.at_failure.clear();
}

void Graph::replay() {
  TANDEM_CHECK(StateError, impl_->graph != nullptr, "Graph: replay without a successful capture");
  TANDEM_CHECK(StateError, !impl_->broken,
               "Graph: an earlier replay threw after it had changed per-step values; capture a new Graph");
  check_not_capturing("a replay");
  const TraceSpan span("graph replay", "cuda");
  impl_->run(/*is_first=*/false);
}

bool is_capturing(Device device) {
  const Recorded* const recorded = recorded_now();
  return recorded != nullptr && recorded->device == device;
}

bool is_capturing() { return recorded_now() != nullptr; }

void check_not_capturing(const char* what) {
  TANDEM_CHECK(StateError, recorded_now() == nullptr, "Graph: ", what,
               " cannot be captured; do it before or after the capture");
}

void check_captured_stream(Device device, uint64_t stream_id) {
  const Recorded& recorded = *recorded_now();
  TANDEM_CHECK(StateError, device == recorded.device, "Graph: ", device, " cannot be used while a graph of ",
               recorded.device, " is captured");
  const bool is_branch = recorded.branch && stream_id == recorded.branch->id();
  TANDEM_CHECK(StateError, stream_id == recorded.stream_id || is_branch,
               "Graph: work on another stream cannot be captured; remove the StreamGuard");
}

uint64_t capture_id() { return is_capturing() ? recorded_now()->stream_id : 0; }

void observe_replays(std::shared_ptr<ReplayObserver> observer) {
  recorded_now()->observers.push_back(std::move(observer));
}

Stream fork_capture(Device device) {
  Recorded& recorded = *recorded_now();
  const DeviceGuard guard(device);
  const CapturePoint now(current_stream(device));
  if (!recorded.branch) recorded.branch.emplace(device, true);
  now.make_wait(*recorded.branch);
  return *recorded.branch;
}

std::shared_ptr<const CapturePoint> capture_point() {
  const Recorded& recorded = *recorded_now();
  const DeviceGuard guard(recorded.device);
  return std::make_shared<const CapturePoint>(*recorded.branch);
}

void join_capture(const CapturePoint& point) {
  const Device device = recorded_now()->device;
  const DeviceGuard guard(device);
  point.make_wait(current_stream(device));
}

void on_replay(std::function<void()> f) { recorded_now()->before_replay.push_back(std::move(f)); }

void on_failed_capture(std::function<void()> f) { recorded_now()->at_failure.push_back(std::move(f)); }

bool is_allocated_in_capture(const Tensor& tensor) {
  const Recorded* const recorded = recorded_now();
  return recorded != nullptr && tensor.storage()->stream_id() == recorded->stream_id;
}

Tensor step_block(Device device) { return is_capturing(device) ? recorded_now()->block : Tensor(); }

Tensor add_step_bytes(const void* now, size_t num_bytes, std::function<void(void* bytes)> make) {
  Recorded& recorded = *recorded_now();
  const size_t begin = recorded.numbers.size(), count = num_bytes / sizeof(double);
  TANDEM_CHECK(StateError, begin + count <= kMaxNumbers, "Graph: the captured operations need more than ", kMaxNumbers,
               " per-step values");
  recorded.numbers.resize(begin + count);
  std::memcpy(&recorded.numbers[begin], now, num_bytes);
  on_replay([&recorded, begin, make = std::move(make)] { make(&recorded.numbers[begin]); });
  return make_view(recorded.block.storage(), kFloat64, {static_cast<int64_t>(count)}, {1}, static_cast<int64_t>(begin));
}

void fill_in_replays(const Tensor& out, std::function<double()> value) {
  if (!is_capturing(out.device())) return;
  const double now = value();
  const auto write = [value = std::move(value)](void* bytes) {
    const double then = value();
    std::memcpy(bytes, &then, sizeof(then));
  };
  const Tensor step = add_step_bytes(&now, sizeof(now), write);
  const Shape strides(static_cast<size_t>(out.dim()), 0);
  primitives::copy(make_view(step.storage(), kFloat64, out.shape(), strides, step.impl().offset), out);
}

}}}  // namespace tandem::v0::cuda
