// Conversion of GPU event times to trace times.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace_clock.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// One point in time as a GPU event and as host time. Converts the times of other events to host time.
struct TANDEM_API ClockAnchor {
  Event event;
  int64_t host_ns;
  /// Time of completion of a timed event, on the scale of trace_now_ns(); throws if it has not completed.
  int64_t host_ns_of(const Event& timed) const;
};

/// Keeps a recent clock anchor of a GPU. Not thread-safe.
class TANDEM_API GpuTraceClock {
 public:
  explicit GpuTraceClock(Device device) : device_(device) {}
  /// The current anchor; null if no trace is being recorded. Renewed every ten seconds, because event times are float
  /// milliseconds, whose resolution becomes worse with the distance from the anchor. The renewal makes the host wait
  /// for an event.
  std::shared_ptr<const ClockAnchor> anchor();

 private:
  const Device device_;
  std::shared_ptr<const ClockAnchor> newest_;
};

/// Times the spans of a trace on a GPU: start_trace(std::make_shared<GpuSpanClock>(device)). Events on the calling
/// thread's current stream mark begin and end of a span, as in PyTorch's autograd profiler with use_device="cuda". A
/// span therefore includes time in which the GPU waits for the host. Spans inside a graph capture have no marks. Use it
/// for a few steps: each span keeps two events until the trace stops.
class TANDEM_API GpuSpanClock : public TraceClock {
 public:
  /// Throws DeviceError.
  explicit GpuSpanClock(Device device);
  int64_t mark() noexcept override;
  std::vector<int64_t> times_ns() override;

 private:
  const Device device_;
  const ClockAnchor begin_;
  std::mutex mutex_;  // guards marks_
  std::vector<Event> marks_;
};

}}}  // namespace tandem::v0::cuda
