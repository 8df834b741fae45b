// Trace events: who did what, when, on which rank and thread.  base/ records them, profile/ reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem::inline v0 {

/// One span or instant.  Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
struct TraceEvent {
  std::string name;
  std::string category;  ///< "forward", "backward", "comm", "optimizer", "data", "step", "wait"
  int rank = 0;
  int thread = 0;  ///< 0 = the rank's own thread, 1 = its group's worker, 2.. = loader workers
  int64_t begin_ns = 0;
  int64_t end_ns = 0;     ///< equal to begin_ns for an instant
  int64_t num_bytes = 0;  ///< 0 = not applicable
};

/// Nanoseconds of CLOCK_MONOTONIC.
TANDEM_API int64_t trace_now_ns();

/// Whether events are kept; off until start_trace.  One relaxed load.
TANDEM_API bool trace_enabled();
TANDEM_API void start_trace();
/// Stops recording and returns the events of this process, oldest first.
TANDEM_API std::vector<TraceEvent> stop_trace();
/// Keeps an event if tracing is on.  Safe from many threads.
TANDEM_API void record_trace(TraceEvent event);
/// Number shown for the calling thread in its events.
TANDEM_API void set_trace_thread(int thread);

/// Records a span from construction to destruction, for the calling thread's rank.
class TANDEM_API TraceSpan {
 public:
  TraceSpan(std::string_view name, std::string_view category, int64_t num_bytes = 0);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  bool on_;
  TraceEvent event_;
};

}  // namespace tandem::inline v0
