// Traces whose spans are timed by another clock than the host's, such as a GPU's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A clock whose times are known after the work only.  Safe from many threads.
class TANDEM_API TraceClock {
 public:
  static constexpr int64_t kNoMark = -1;

  virtual ~TraceClock() = default;
  /// Marks the present point in the calling thread's work.  Returns the mark's index, counted from 0, or kNoMark.
  virtual int64_t mark() noexcept = 0;
  /// When each mark was reached, in nanoseconds on the scale of trace_now_ns().  Waits for the work; throws what failed in it.
  virtual std::vector<int64_t> times_ns() = 0;
};

/// As start_trace(), but spans begin and end at marks of `clock`; spans without a mark are dropped.  Times of events that
/// record_trace() gets are kept.  stop_trace() reads the clock, and throws what its times_ns() throws.
TANDEM_API void start_trace(std::shared_ptr<TraceClock> clock);

}}  // namespace tandem::v0
