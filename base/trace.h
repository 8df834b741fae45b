// Trace events: named time spans by rank and thread. base/ records them, profile/ reports them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Thread numbers in traces; kFirst... is the number of the first of several threads of one kind.
enum TraceThread : int {
  kRankThread = 0,
  kGroupWorkerThread = 1,
  kFirstLoaderThread = 2,
  kFirstCopyWorkerThread = 64,   ///< see chunked_work.h
  kFirstConcurrentThread = 128,  ///< see run_concurrently
  kGpuStepThread = 254,          ///< not a thread: row of training steps on the GPU
  kNcclStreamThread = 255,       ///< not a thread: row of collectives on the GPU
};

/// One span or instant. Times are in nanoseconds of CLOCK_MONOTONIC, which is common to all processes of a host.
struct TraceEvent {
  std::string name;  ///< the operation, module or phase
  /// Spans of the categories "op" (a public operation), "copy" (a primitive of tensor/) and "backward" (of one node)
  /// have num_bytes and num_flops. Other categories: "forward" (a module), "backward" (the whole pass, which contains
  /// one span per node), "comm", "consistency check" (of a GPU collective), "optimizer", "data", "io", "step", "wait"
  /// and "algorithm" (the algorithm that a kernel or collective has chosen).
  std::string category;
  int rank = 0;             ///< in the job
  int thread = 0;           ///< see TraceThread
  int64_t begin_ns = 0;     ///< start of the span
  int64_t end_ns = 0;       ///< equal to begin_ns for an instant
  int64_t num_bytes = 0;    ///< read and written, or sent; 0 = not applicable
  int64_t num_flops = 0;    ///< a multiply-add counts as two; 0 = not counted
  std::string module = {};  ///< module of the operation, such as "Linear 'fc1'"; "" outside modules
};

struct OpenTraceSpan;

/// Nanoseconds of CLOCK_MONOTONIC.
TANDEM_API int64_t trace_now_ns();

/// Whether a trace is being recorded. One relaxed load.
TANDEM_API bool trace_enabled();
/// Starts recording; discards the events of an earlier trace.
TANDEM_API void start_trace();
/// Stops recording and returns the events of this process by begin time.
TANDEM_API std::vector<TraceEvent> stop_trace();
/// Adds an event to the trace, if one is being recorded. Thread-safe.
TANDEM_API void record_trace(TraceEvent event);
/// Sets the calling thread's number in traces (TraceThread).
TANDEM_API void set_trace_thread(int thread);

/// Adds work to the calling thread's innermost open span, if tracing is on. Must not be called inside a piece of
/// parallel_for.
TANDEM_API void trace_work(int64_t num_flops, int64_t num_bytes = 0);
/// Adds bytes of operands and results to the innermost open span. They become the span's num_bytes if trace_work added
/// no bytes and the span did the work itself, that is, if it has flops or contains no "op" or "copy" span.
TANDEM_API void trace_operand_bytes(int64_t num_bytes);

/// Records a span from construction to destruction, for the calling thread's rank. Spans of a thread nest. Must not be
/// used inside a piece of parallel_for.
class TANDEM_API TraceSpan {
 public:
  /// Records nothing.
  TraceSpan() = default;
  /// num_bytes: for category "op" the bytes of the operands (trace_operand_bytes).
  TraceSpan(std::string_view name, std::string_view category, int64_t num_bytes = 0) {
    if (trace_enabled()) open(name, category, num_bytes);
  }
  ~TraceSpan() {
    if (open_ != nullptr) close();
  }
  TraceSpan(TraceSpan&& other) noexcept : open_(std::exchange(other.open_, nullptr)) {}
  TraceSpan& operator=(TraceSpan&&) = delete;

 private:
  void open(std::string_view name, std::string_view category, int64_t num_bytes);
  void close();
  OpenTraceSpan* open_ = nullptr;  // null if tracing is off; a span then costs a load and two comparisons
};

}}  // namespace tandem::v0
