#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/cuda_memory.h>

namespace tandem { inline namespace v0 { namespace cuda {

struct Stream::Impl {
  Device device;
  uint64_t id;
  cudaStream_t stream = nullptr;

  Impl(Device where, bool high_priority) : device(where) {
    static std::atomic<uint64_t> num_streams{0};
    id = ++num_streams;
    check_device(device);
    const DeviceGuard guard(device);
    int least = 0, greatest = 0;
    TANDEM_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TANDEM_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, high_priority ? greatest : least));
  }
  ~Impl() {
    const DeviceGuard guard(device, std::nothrow);
    cudaStreamDestroy(stream);  // queued work still runs
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

Stream::Stream(Device device, bool high_priority) : impl_(std::make_shared<Impl>(device, high_priority)) {}

Device Stream::device() const { return impl_->device; }
void* Stream::handle() const { return impl_->stream; }
uint64_t Stream::id() const { return impl_->id; }

void Stream::synchronize() const {
  check_not_capturing("waiting for a stream (item, printing, synchronize)");
  const DeviceGuard guard(impl_->device);
  TANDEM_CUDA_CHECK(cudaStreamSynchronize(impl_->stream));
  throw_device_error(impl_->device);
}

bool Stream::is_idle() const {
  check_not_capturing("querying a stream");
  const DeviceGuard guard(impl_->device);
  const cudaError_t status = cudaStreamQuery(impl_->stream);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaStreamQuery");
  return true;
}

namespace {

/// The streams shared by all threads: number 0 is the device's default stream, the others are its side streams. Created
/// at first use and never destroyed, because memory with static storage duration is freed in their order.
template <class Impl>
const std::shared_ptr<Impl>& shared_stream(Device device, int number) {
  check_device(device);
  struct Shared {
    std::once_flag made;
    std::shared_ptr<Impl> stream;
  };
  static Shared* const shared = new Shared[static_cast<size_t>(device_count() * (1 + kSideStreams))];
  Shared& mine = shared[device.index * (1 + kSideStreams) + number];
  std::call_once(mine.made, [&] { mine.stream = std::make_shared<Impl>(device, false); });
  return mine.stream;
}

}  // namespace

Stream current_stream(Device device) {
  const OpenStreams& open = RankContext::current().open_streams;
  for (auto* guard = static_cast<const StreamGuard*>(open.innermost); guard != nullptr; guard = guard->previous_) {
    for (const Stream& stream : guard->streams_) {
      if (stream.device() != device) continue;
      if (open.capture != nullptr) check_captured_stream(device, stream.id());
      return stream;
    }
  }
  const std::shared_ptr<Stream::Impl>& shared = shared_stream<Stream::Impl>(device, 0);
  if (open.capture != nullptr) check_captured_stream(device, shared->id);
  return Stream(shared);
}

Stream side_stream(Device device, int number) {
  TANDEM_CHECK(ValueError, number >= 0 && number < kSideStreams, "side_stream: number ", number, " is not in [0, ",
               kSideStreams, ")");
  return Stream(shared_stream<Stream::Impl>(device, 1 + number));
}

uint64_t current_stream_id(Device device) { return current_stream(device).id(); }
cudaStream_t stream_of(Device device) { return static_cast<cudaStream_t>(current_stream(device).handle()); }

StreamGuard::StreamGuard(std::vector<Stream> streams)
    : streams_(std::move(streams)),
      previous_(static_cast<const StreamGuard*>(RankContext::current().open_streams.innermost)) {
  RankContext::current().open_streams.innermost = this;
}
StreamGuard::~StreamGuard() { RankContext::current().open_streams.innermost = previous_; }

struct Event::Impl {
  Device device;
  cudaEvent_t event = nullptr;

  Impl(Device where, bool timed) : device(where) {
    check_device(device);
    const DeviceGuard guard(device);
    TANDEM_CUDA_CHECK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~Impl() {
    const DeviceGuard guard(device, std::nothrow);
    cudaEventDestroy(event);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

Event::Event(Device device, bool timed) : impl_(std::make_shared<Impl>(device, timed)) {}

Device Event::device() const { return impl_->device; }

void Event::record(const Stream& stream) const {
  check_not_capturing("an event");
  const DeviceGuard guard(impl_->device);
  TANDEM_CUDA_CHECK(cudaEventRecord(impl_->event, static_cast<cudaStream_t>(stream.handle())));
}

void Event::make_wait(const Stream& stream) const {
  check_not_capturing("an event");
  const DeviceGuard guard(stream.device());
  TANDEM_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle()), impl_->event, 0));
}

bool Event::is_completed() const {
  const DeviceGuard guard(impl_->device);
  const cudaError_t status = cudaEventQuery(impl_->event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

void Event::synchronize() const {
  check_not_capturing("waiting for an event");
  const DeviceGuard guard(impl_->device);
  TANDEM_CUDA_CHECK(cudaEventSynchronize(impl_->event));
}

double Event::milliseconds_since(const Event& earlier) const {
  const DeviceGuard guard(impl_->device);
  float milliseconds = 0;
  TANDEM_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.impl_->event, impl_->event));
  return milliseconds;
}

void synchronize(Device device) { current_stream(device).synchronize(); }

}}}  // namespace tandem::v0::cuda
