#include <tandem/tensor/gpu_trace_clock.h>

#include <tandem/base/error.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// A clock anchor of the present time. Waits for an event on a new stream, so that no queued work delays it.
ClockAnchor current_anchor(Device device) {
  const Stream aside(device);
  const Event event(device, true);
  event.record(aside);
  event.synchronize();
  return {event, trace_now_ns()};
}

}  // namespace

int64_t ClockAnchor::host_ns_of(const Event& timed) const {
  return host_ns + static_cast<int64_t>(timed.milliseconds_since(event) * 1e6);
}

std::shared_ptr<const ClockAnchor> GpuTraceClock::anchor() {
  constexpr int64_t kAnchorLifetimeNs = 10'000'000'000;
  if (!trace_enabled()) return nullptr;
  if (newest_ != nullptr && trace_now_ns() - newest_->host_ns < kAnchorLifetimeNs) return newest_;
  newest_ = std::make_shared<const ClockAnchor>(current_anchor(device_));
  return newest_;
}

GpuSpanClock::GpuSpanClock(Device device) : device_(device), begin_(current_anchor(device)) {}

int64_t GpuSpanClock::mark() noexcept {
  try {
    const Event event(device_, true);
    event.record(current_stream(device_));
    std::lock_guard lock(mutex_);
    marks_.push_back(event);
    return static_cast<int64_t>(marks_.size()) - 1;
  } catch (const Error&) {
    return kNoMark;  // during a graph capture; a failed GPU throws at its next synchronization
  }
}

std::vector<int64_t> GpuSpanClock::times_ns() {
  std::lock_guard lock(mutex_);
  std::vector<int64_t> times;
  times.reserve(marks_.size());
  for (const Event& event : marks_) {
    event.synchronize();
    times.push_back(begin_.host_ns_of(event));
  }
  return times;
}

}}}  // namespace tandem::v0::cuda
