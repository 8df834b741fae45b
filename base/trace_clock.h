// Traces whose spans are timed by a clock other than the host's, such as a GPU's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A clock whose times are known only after the work has run. Thread-safe.
class TANDEM_API TraceClock {
 public:
  static constexpr int64_t kNoMark = -1;

  virtual ~TraceClock() = default;
  /// Marks the current point in the calling thread's work. Returns the index of the mark, counted from 0, or kNoMark.
  virtual int64_t mark() noexcept = 0;
  /// Time of each mark in nanoseconds, on the scale of trace_now_ns(). Waits for the work; throws its errors.
  virtual std::vector<int64_t> times_ns() = 0;
};

/// As start_trace(), but spans begin and end at marks of `clock`; spans without marks are dropped. Events passed to
/// record_trace() keep their times. stop_trace() calls times_ns(), and throws its errors.
TANDEM_API void start_trace(std::shared_ptr<TraceClock> clock);

}}  // namespace tandem::v0
