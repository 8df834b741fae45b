// Times of a GPU as times of traces.
#pragma once

#include <cstdint>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/tensor/cuda.h>

namespace tandem::inline v0::cuda {

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

}  // namespace tandem::inline v0::cuda
