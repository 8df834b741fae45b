// Times of a GPU as times of traces.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace_clock.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// A moment that the GPU and the host both know.
struct TANDEM_API CommonMoment {
  Event event;
  int64_t host_ns;
  /// trace_now_ns() when the timed `event` was passed; throws where it was not.
  int64_t host_ns_of(const Event& timed) const;
};

/// For one thread at a time.
class TANDEM_API GpuTraceClock {
 public:
  explicit GpuTraceClock(Device device) : device_(device) {}
  /// Null unless a trace is recorded.  A new moment every ten seconds, which the host waits for: counted from one of some hours ago a
  /// GPU's milliseconds are coarse.
  std::shared_ptr<const CommonMoment> moment();

 private:
  const Device device_;
  std::shared_ptr<const CommonMoment> newest_;
};

/// Times a trace's spans on a GPU: start_trace(std::make_shared<GpuSpanClock>(device)).  A span lasts from when the calling thread's
/// current stream has done what was queued before the span until it has done what the span queued, by events in the stream (as
/// PyTorch's autograd profiler with use_device="cuda").  Time in which the GPU waits for the host is counted too.  Spans inside of
/// a graph's capture have no mark.  Meant for some steps: each span keeps two events until the trace stops.
class TANDEM_API GpuSpanClock : public TraceClock {
 public:
  /// Throws DeviceError.
  explicit GpuSpanClock(Device device);
  int64_t mark() noexcept override;
  std::vector<int64_t> times_ns() override;

 private:
  const Device device_;
  const CommonMoment begin_;
  std::mutex mutex_;  // guards marks_
  std::vector<Event> marks_;
};

}}}  // namespace tandem::v0::cuda
