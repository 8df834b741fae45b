// Trace events: who did what, when, on which rank and thread.  base/ records them, profile/ reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Numbers of a rank's threads; where there are several of a kind, of the first.
enum TraceThread : int {
  kRankThread = 0,
  kGroupWorkerThread = 1,
  kFirstLoaderThread = 2,
  kFirstCarrierThread = 64,    ///< of chunks, see chunked_work.h
  kFirstTogetherThread = 128,  ///< see run_together
  kGpuStepThread = 254,        ///< no thread: a reducer's steps as a GPU computes them
  kGpuLaneThread = 255,        ///< no thread: collectives as they run on a GPU
};

/// One span or instant.  Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
struct TraceEvent {
  std::string name;
  /// "op" (a public operation) and "copy" (a chore of tensor/) count their work; around them lie "forward" (a module),
  /// "backward" (a whole one, and in it one per node, which counts its work too), "comm", "verdict" (ranks agree on a collective of GPUs),
  /// "optimizer", "data", "step" and "wait".
  std::string category;
  int rank = 0;
  int thread = 0;  ///< see TraceThread
  int64_t begin_ns = 0;
  int64_t end_ns = 0;       ///< equal to begin_ns for an instant
  int64_t num_bytes = 0;    ///< read and written, or sent; 0 = not applicable
  int64_t num_flops = 0;    ///< two for a multiply-add; 0 = not counted
  std::string module = {};  ///< the module in which an operation ran, such as "Linear 'fc1'"; "" outside
};

struct OpenTraceSpan;

/// Nanoseconds of CLOCK_MONOTONIC.
TANDEM_API int64_t trace_now_ns();

/// Whether events are kept; off until start_trace.  One relaxed load.
TANDEM_API bool trace_enabled();
TANDEM_API void start_trace();
/// Stops recording and returns the events of this process, oldest first.
TANDEM_API std::vector<TraceEvent> stop_trace();
/// Keeps an event if tracing is on.  Safe from many threads.
TANDEM_API void record_trace(TraceEvent event);
/// Number shown for the calling thread in its events, see TraceThread.
TANDEM_API void set_trace_thread(int thread);

/// Counts work to the calling thread's innermost open span, if tracing is on.  Not from inside a piece of parallel_for.
TANDEM_API void trace_work(int64_t num_flops, int64_t num_bytes = 0);
/// Bytes of operands and results of the innermost open span.  They are the span's if it gives none by trace_work, and either
/// gives flops or contains no span of an operation or chore, which did the work then.
TANDEM_API void trace_operand_bytes(int64_t num_bytes);

/// Records a span from construction to destruction, for the calling thread's rank.  Spans of a thread nest; none is opened
/// inside a piece of parallel_for.
class TANDEM_API TraceSpan {
 public:
  /// No span.
  TraceSpan() = default;
  /// num_bytes: of an "op" its operands', as trace_operand_bytes takes them.
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
  OpenTraceSpan* open_ = nullptr;  // null while tracing is off: then a span costs a load and two comparisons
};

}}  // namespace tandem::v0
