#include <tandem/tensor/gpu_trace_clock.h>

#include <tandem/base/trace.h>

namespace tandem::inline v0::cuda {

int64_t CommonMoment::host_ns_of(const Event& timed) const {
  return host_ns + static_cast<int64_t>(timed.milliseconds_since(event) * 1e6);
}

std::shared_ptr<const CommonMoment> GpuTraceClock::moment() {
  constexpr int64_t kLongest = 10'000'000'000;
  if (!trace_enabled()) return nullptr;
  if (newest_ != nullptr && trace_now_ns() - newest_->host_ns < kLongest) return newest_;
  const Stream aside(device_);
  const Event event(device_, true);
  event.record(aside);
  event.synchronize();
  newest_ = std::make_shared<const CommonMoment>(CommonMoment{event, trace_now_ns()});
  return newest_;
}

}  // namespace tandem::inline v0::cuda
